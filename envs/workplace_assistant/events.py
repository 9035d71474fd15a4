"""The tools for the calendar."""

from typing import Annotated

from pydantic import Field

from gymcli import JSONObject, tool

from .tables import Office, duration_fault, page_of, time_fault

__all__ = ["CalendarTools"]

EventId = Annotated[str, Field(description="Id of the event, eight digits.")]


class CalendarTools:
    """Reads, makes, changes and deletes events."""

    office: Office

    @tool(reads_only=True)
    def calendar_get_event_information_by_id(
        self,
        event_id: EventId,
        field: Annotated[
            str,
            Field(
                description="Field to give: 'event_id', 'event_name', 'participant_email', "
                "'event_start' or 'duration'."
            ),
        ],
    ) -> JSONObject | str:
        """Give one field of the event that has an id."""
        return self.office.events.read(event_id, field)

    @tool(reads_only=True)
    def calendar_search_events(
        self,
        query: Annotated[
            str, Field(description="Text that event_name or participant_email must contain.")
        ] = "",
        time_min: Annotated[
            str, Field(description="Earliest start of an event, as YYYY-MM-DD HH:MM:SS.")
        ] = "",
        time_max: Annotated[
            str, Field(description="Latest start of an event, as YYYY-MM-DD HH:MM:SS.")
        ] = "",
        page: Annotated[int, Field(description="Page of the result, from 1.")] = 1,
        page_size: Annotated[int, Field(description="Events on a page.")] = 5,
    ) -> JSONObject | str:
        """Search events by text, in any case, and time; the latest start comes first."""
        for limit in (time_min, time_max):
            if limit and (fault := time_fault(limit)):
                return fault
        wanted = query.lower()
        found = [
            event
            for event in self.office.events.rows
            if time_min <= event["event_start"] <= (time_max or "9999")
            and (
                wanted in event["event_name"].lower()
                or wanted in event["participant_email"].lower()
            )
        ]
        found.sort(key=lambda event: event["event_start"], reverse=True)
        return page_of(found, "events", page, page_size)

    @tool
    def calendar_create_event(
        self,
        event_name: Annotated[str, Field(description="Name of the event.")],
        participant_email: Annotated[str, Field(description="E-mail address of who takes part.")],
        event_start: Annotated[str, Field(description="Its start, as YYYY-MM-DD HH:MM:SS.")],
        duration: Annotated[str, Field(description="Its length in whole minutes, such as 45.")],
    ) -> str:
        """Put a new event into the calendar; gives its id."""
        if not (event_name and participant_email):
            return "The event's name and participant must not be empty; nothing was made."
        fault = _fault("event_start", event_start) or _fault("duration", duration)
        return fault or self.office.events.add(
            {
                "event_name": event_name,
                "participant_email": participant_email.lower(),
                "event_start": event_start,
                "duration": duration,
            }
        )

    @tool
    def calendar_delete_event(self, event_id: EventId) -> str:
        """Delete the event that has an id."""
        return self.office.events.delete(event_id)

    @tool
    def calendar_update_event(
        self,
        event_id: EventId,
        field: Annotated[
            str,
            Field(
                description="Field to change: 'event_name', 'participant_email', 'event_start' "
                "or 'duration'."
            ),
        ],
        new_value: Annotated[str, Field(description="What the field shall hold.")],
    ) -> str:
        """Change one field of the event that has an id."""
        fault = _fault(field, new_value)
        if field == "participant_email":
            new_value = new_value.lower()
        return fault or self.office.events.update(event_id, field, new_value)


def _fault(field: str, value: str) -> str:
    """Return what is wrong with the value of a field, if anything."""
    if not value:
        return f"The new value of {field} must not be empty."
    if field == "event_start":
        return time_fault(value)
    return duration_fault(value) if field == "duration" else ""
