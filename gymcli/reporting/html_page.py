"""The page: one file that opens without a network; no text of a run can become a script in it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gymcli.comparison.gates import GateVerdict
from gymcli.comparison.reproduction import BenchmarkScore
from gymcli.errors import MissingPackageError
from gymcli.reporting.html_comparison import ComparisonSection
from gymcli.reporting.html_parts import Chart, Shown
from gymcli.reporting.html_run import ReportedRun, RunSection, run_section, runs_table
from gymcli.types import JSONObject

if TYPE_CHECKING:
    import jinja2

MARK = '<meta name="generator" content="gym report">'
"""Near the beginning of every page; marks files that `gym report` may replace."""

_TEMPLATES = Path(__file__).resolve().parent / "templates"

_TITLES = (
    ("verdict", "Verdict"),
    ("environments", "Environments"),
    ("rewards", "Rewards"),
    ("effort", "Time and tokens"),
    ("failures", "Failures"),
    ("attempts", "Attempts"),
    ("slices", "Slices"),
    ("tasks", "Tasks"),
    ("method", "Method"),
)
"""Parts of a run's section, and their titles."""

# Escapes for JSON in a script element: no text can end the element or a line of the script.
_IN_SCRIPT = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def html_report(
    runs: Sequence[ReportedRun],
    *,
    comparison: ComparisonSection | None = None,
    verdicts: Sequence[Sequence[GateVerdict]] = (),
    scores: Sequence[BenchmarkScore | None] = (),
    clean: Callable[[str], str],
) -> str:
    """Return the page about these runs.

    `clean` removes secrets and control characters from a text.

    Raises:
        MissingPackageError: jinja2 or plotly is not installed.
    """
    try:  # late: extras
        import jinja2  # noqa: F401  # imported here for the message
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingPackageError(
            f"gym report needs the package {error.name}: pip install 'gymcli[report]'"
        ) from error
    judged, run_scores = verdicts or [()] * len(runs), scores or [None] * len(runs)
    judged_runs = zip(runs, judged, run_scores, strict=True)
    sections = [
        run_section(run, f"run-{number}", verdicts=run_verdicts, score=score)
        for number, (run, run_verdicts, score) in enumerate(judged_runs, 1)
    ]
    style, script = (
        (_TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    # A string of the library that ends the script element would cut the script off.
    plotly = get_plotlyjs().replace("</script", "<\\/script")
    return _template(clean).render(
        mark=_trusted(MARK),
        policy=_policy([plotly, script]),
        style=_trusted(style),
        script=_trusted(script),
        plotly=_trusted(plotly),
        sections=sections,
        titles=_TITLES,
        comparison=comparison,
        runs=runs_table(runs),
        # Plotly reads texts as markup; our script sets those of tasks as plain text.
        figures=_embedded(
            _cleaned(_figures(sections, comparison), lambda text: _plain(clean(text)))
        ),
        tasks=_embedded({part.anchor: _cleaned(part.tasks.data, clean) for part in sections}),
    )


def _template(clean: Callable[[str], str]) -> jinja2.Template:
    import jinja2  # late: an extra

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Not isinstance: trusted text is a Markup, a subclass of str that must stay as it is.
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["number"] = lambda cell: isinstance(cell, Shown)
    return environment.get_template("report.html.jinja")


def _figures(sections: Sequence[RunSection], comparison: ComparisonSection | None) -> JSONObject:
    charts: list[Chart] = []
    for section in sections:
        charts += [chart for part in section.by_environment for chart in part.charts]
        charts += [*section.effort, *section.slices, *filter(None, [section.failures])]
    charts += comparison.charts if comparison is not None else ()
    return {chart.name: chart.figure for chart in charts if chart.figure is not None}


def _trusted(text: str) -> object:
    """Mark our own or plotly's text, which goes into the page unescaped."""
    import markupsafe  # late: comes with jinja2

    return markupsafe.Markup(text)  # noqa: S704  # never called with text of a run


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy: only these scripts, and nothing from the network.

    Plotly sets styles as it draws, so hashes cannot list them; no style can load anything.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(value: object) -> object:
    text = msgspec.json.encode(value).decode()
    for character, escaped in _IN_SCRIPT.items():
        text = text.replace(character, escaped)
    return _trusted(text)


def _cleaned(value: object, clean: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, Mapping):
        return {key: _cleaned(item, clean) for key, item in value.items()}
    return value


def _plain(text: str) -> str:
    """Escape a text so that plotly does not read it as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
