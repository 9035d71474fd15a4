"""Makes `gymcli.envs.<name>` importable from wheel, editable install and checkout."""

from pathlib import Path

_packaged = Path(__file__).parent / "_envs"
__path__ = [str(_packaged if _packaged.is_dir() else Path(__file__).parents[1] / "envs")]
