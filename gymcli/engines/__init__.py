"""Where attempts run and lines are scored: here, or in the workers of a Ray cluster."""

from gymcli.engines.cluster import Cluster
from gymcli.engines.library import collect, engine_of
from gymcli.engines.ray_engine import RayEngine
from gymcli.engines.scorers import RayScorers

__all__ = ["Cluster", "RayEngine", "RayScorers", "collect", "engine_of"]
