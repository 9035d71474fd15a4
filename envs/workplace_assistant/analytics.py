"""The tools for the visits to the company's site."""

from collections import defaultdict
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import Field

from gymcli import JSONObject, tool

from .tables import Office, Row, day_fault

__all__ = ["PLOT_TYPES", "VALUES_TO_PLOT", "AnalyticsTools"]

T = TypeVar("T")

FirstDay = Annotated[str, Field(description="First day, as YYYY-MM-DD.")]
LastDay = Annotated[str, Field(description="Last day, as YYYY-MM-DD.")]

VALUES_TO_PLOT = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOT_TYPES = ("bar", "line", "scatter", "histogram")


class AnalyticsTools:
    """Counts visits and plots them."""

    office: Office

    @tool(reads_only=True)
    def analytics_get_visitor_information_by_id(
        self, visitor_id: Annotated[str, Field(description="Id of the visitor.")]
    ) -> list[JSONObject] | str:
        """Give every visit of one visitor."""
        visits: list[JSONObject] = [
            {**visit, "user_engaged": _is_engaged(visit)}
            for visit in self.office.visits.rows
            if visit["visitor_id"] == visitor_id
        ]
        return visits or self.office.visits.missing(visitor_id)

    @tool
    def analytics_create_plot(
        self,
        time_min: FirstDay,
        time_max: LastDay,
        value_to_plot: Annotated[
            str, Field(description=f"What is plotted: {', '.join(map(repr, VALUES_TO_PLOT))}.")
        ],
        plot_type: Annotated[
            str, Field(description=f"Kind of plot: {', '.join(map(repr, PLOT_TYPES))}.")
        ],
    ) -> str:
        """Plot a value over a range of days; gives the path of the picture."""
        if not (time_min and time_max):
            return "Give the first and the last day; nothing was plotted."
        if fault := day_fault(time_min) or day_fault(time_max):
            return fault
        if value_to_plot not in VALUES_TO_PLOT:
            return f"value_to_plot must be one of {', '.join(VALUES_TO_PLOT)}."
        if plot_type not in PLOT_TYPES:
            return f"plot_type must be one of {', '.join(PLOT_TYPES)}."
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.office.plots.append({"file_path": path})
        return path

    @tool(reads_only=True)
    def analytics_total_visits_count(
        self, time_min: FirstDay = "", time_max: LastDay = ""
    ) -> dict[str, int] | str:
        """Count the visits of each day in a range."""
        return self._by_day(time_min, time_max, len)

    @tool(reads_only=True)
    def analytics_engaged_users_count(
        self, time_min: FirstDay = "", time_max: LastDay = ""
    ) -> dict[str, int] | str:
        """Count the visits of each day in a range whose user was engaged."""
        return self._by_day(time_min, time_max, lambda visits: sum(map(_is_engaged, visits)))

    @tool(reads_only=True)
    def analytics_traffic_source_count(
        self,
        time_min: FirstDay = "",
        time_max: LastDay = "",
        traffic_source: Annotated[
            str,
            Field(
                description="Where the visits came from: 'direct', 'referral', 'search engine' "
                "or 'social media'."
            ),
        ] = "",
    ) -> dict[str, int] | str:
        """Count the visits of each day in a range that came from one source, or from any."""
        return self._by_day(
            time_min,
            time_max,
            lambda visits: sum(
                not traffic_source or visit["traffic_source"] == traffic_source for visit in visits
            ),
        )

    @tool(reads_only=True)
    def analytics_get_average_session_duration(
        self, time_min: FirstDay = "", time_max: LastDay = ""
    ) -> dict[str, float] | str:
        """Give the mean session duration of each day in a range, in seconds."""
        return self._by_day(
            time_min,
            time_max,
            lambda visits: (
                sum(float(visit["session_duration_seconds"]) for visit in visits) / len(visits)
            ),
        )

    def _by_day(
        self, first: str, last: str, measure: Callable[[list[Row]], T]
    ) -> dict[str, T] | str:
        """Measure the visits of each day in a range that had any."""
        for limit in (first, last):
            if limit and (fault := day_fault(limit)):
                return fault
        days: defaultdict[str, list[Row]] = defaultdict(list)
        for visit in self.office.visits.rows:
            # Days in this form compare as texts; "9999" is later than any of them.
            if first <= visit["date_of_visit"] <= (last or "9999"):
                days[visit["date_of_visit"]].append(visit)
        return {day: measure(visits) for day, visits in sorted(days.items())}


def _is_engaged(visit: Row) -> bool:
    return visit["user_engaged"] == "True"
