"""The tools for the tasks of the projects."""

import re
from typing import Annotated

from pydantic import Field

from gymcli import JSONObject, tool

from .tables import Office, Row, day_fault

__all__ = ["BOARDS", "LISTS", "ProjectTools"]

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")
ADDRESS = re.compile(r"[\w.%+-]+@[\w.-]+\.[A-Za-z]{2,}")

TaskId = Annotated[str, Field(description="Id of the task, eight digits.")]
Name = Annotated[str, Field(description="Name of the task.")]
Assignee = Annotated[str, Field(description="E-mail address of who the task is assigned to.")]
DueDate = Annotated[str, Field(description="Day that the task is due, as YYYY-MM-DD.")]
ListName = Annotated[str, Field(description=f"List of the task: {', '.join(map(repr, LISTS))}.")]
Board = Annotated[str, Field(description=f"Board of the task: {', '.join(map(repr, BOARDS))}.")]


class ProjectTools:
    """Reads, makes, changes and deletes tasks."""

    office: Office

    @tool(reads_only=True)
    def project_management_get_task_information_by_id(
        self,
        task_id: TaskId,
        field: Annotated[
            str,
            Field(
                description="Field to give: 'task_id', 'task_name', 'assigned_to_email', "
                "'list_name', 'due_date' or 'board'."
            ),
        ],
    ) -> JSONObject | str:
        """Give one field of the task that has an id."""
        return self.office.tasks.read(task_id, field)

    @tool(reads_only=True)
    def project_management_search_tasks(
        self,
        task_name: Name = "",
        assigned_to_email: Assignee = "",
        list_name: ListName = "",
        due_date: DueDate = "",
        board: Board = "",
    ) -> list[Row] | str:
        """Search tasks; each text given must occur in its field; address and day must be equal."""
        if assigned_to_email and not ADDRESS.fullmatch(assigned_to_email):
            return f"{assigned_to_email!r} is no e-mail address."
        if due_date and (fault := day_fault(due_date)):
            return fault
        wanted = {
            "task_name": task_name.lower(),
            "list_name": list_name.lower(),
            "due_date": due_date,
            "board": board.lower(),
        }
        if not (assigned_to_email or any(wanted.values())):
            return "Give at least one thing to search for."
        found = [
            task
            for task in self.office.tasks.rows
            if all(text in task[field].lower() for field, text in wanted.items())
            and assigned_to_email.lower() in ("", task["assigned_to_email"].lower())
        ]
        return found or "No tasks found."

    @tool
    def project_management_create_task(
        self,
        task_name: Name,
        assigned_to_email: Assignee,
        list_name: ListName,
        due_date: DueDate,
        board: Board,
    ) -> str:
        """Make a new task; gives its id."""
        row = {
            "task_name": task_name,
            "assigned_to_email": assigned_to_email.lower(),
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        faults = (self._fault(field, value) for field, value in row.items())
        return next(filter(None, faults), "") or self.office.tasks.add(row)

    @tool
    def project_management_delete_task(self, task_id: TaskId) -> str:
        """Delete the task that has an id."""
        return self.office.tasks.delete(task_id)

    @tool
    def project_management_update_task(
        self,
        task_id: TaskId,
        field: Annotated[
            str,
            Field(
                description="Field to change: 'task_name', 'assigned_to_email', 'list_name', "
                "'due_date' or 'board'."
            ),
        ],
        new_value: Annotated[str, Field(description="What the field shall hold.")],
    ) -> str:
        """Change one field of the task that has an id."""
        if field == "assigned_to_email":
            new_value = new_value.lower()
        return self._fault(field, new_value) or self.office.tasks.update(task_id, field, new_value)

    def _fault(self, field: str, value: str) -> str:
        """Return what is wrong with the value of a field, if anything."""
        if not value:
            return f"The value of {field} must not be empty."
        if field == "list_name" and value not in LISTS:
            return f"list_name must be one of {', '.join(LISTS)}."
        if field == "board" and value not in BOARDS:
            return f"board must be one of {', '.join(BOARDS)}."
        if field == "due_date":
            return day_fault(value)
        if field == "assigned_to_email":
            team = {task["assigned_to_email"].lower() for task in self.office.tasks.rows}
            return "" if value in team else f"Nobody on the team has the address {value!r}."
        return ""
