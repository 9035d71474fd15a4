"""Options of a Ray cluster, and what runs on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, NamedTuple

from gymcli.errors import UsageError

if TYPE_CHECKING:
    from gymcli.engines import RayScorers
    from gymcli.runner.engine import Engine
    from gymcli.runner.judging import Judges
    from gymcli.runner.options import CollectOptions

__all__ = ["Cluster", "engine_of_run"]


class Cluster(NamedTuple):
    """What the options say."""

    engine: Literal["local", "ray"]
    address: str | None
    num_workers: int | None

    def check(self) -> None:
        """Refuse options of a cluster where none is used.

        Raises:
            UsageError: They are given.

        """
        if self.engine == "local" and (self.address is not None or self.num_workers is not None):
            raise UsageError(
                "--address and --workers are options of --engine ray; give that as well"
            )

    def pending_engine(
        self, env: str | None, judges: Judges
    ) -> AbstractContextManager[Engine | None]:
        """Give what scores waiting conversations, where that is not this process.

        Raises:
            MissingPackageError: Ray is not installed.
            UsageError: The address is none.

        """
        if self.engine == "local":
            return nullcontext()
        from gymcli import engines  # late: heavy, and few commands need it

        return engines.RayEngine(
            engines.Cluster(self.address, self.num_workers),
            env=env,
            role_params=judges.params,
            scrubber=judges.scrubber(),
        )

    def scorers(self, env: str | None, judges: Judges) -> AbstractContextManager[RayScorers | None]:
        """Give what scores stored lines, where that is not this machine.

        Raises:
            MissingPackageError: Ray is not installed.
            UsageError: The address is none.

        """
        if self.engine == "local":
            return nullcontext()
        from gymcli import engines  # late: heavy, and few commands need it

        cluster = engines.Cluster(self.address, self.num_workers)
        return engines.RayScorers(cluster, env=env, scrubber=judges.scrubber())


def engine_of_run(options: CollectOptions) -> Engine | None:
    """Give what runs the attempts of a collection, where that is not this process.

    Raises:
        MissingPackageError: Ray is not installed.
        UsageError: The address is none.

    """
    if options.engine == "local":
        return None
    from gymcli.engines import engine_of  # late: heavy, and few runs need it

    return engine_of(options)
