"""The tools for the customers."""

import itertools
from typing import Annotated

from pydantic import Field

from gymcli import JSONObject, tool

from .tables import Office, day_fault, page_of

__all__ = ["PRODUCTS", "STATUSES", "CustomerTools"]

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
DAYS = ("last_contact_date", "follow_up_by")

CustomerId = Annotated[str, Field(description="Id of the customer, eight digits.")]
Name = Annotated[str, Field(description="Name of the customer.")]
Address = Annotated[str, Field(description="E-mail address of the customer.")]
Assignee = Annotated[str, Field(description="E-mail address of who looks after the customer.")]
Product = Annotated[
    str, Field(description=f"What they are interested in: {', '.join(map(repr, PRODUCTS))}.")
]
Status = Annotated[
    str, Field(description=f"How far it has come: {', '.join(map(repr, STATUSES))}.")
]
Day = Annotated[str, Field(description="A day, as YYYY-MM-DD.")]


class CustomerTools:
    """Searches, adds, changes and deletes customers."""

    office: Office

    @tool(reads_only=True)
    def customer_relationship_manager_search_customers(
        self,
        customer_name: Name = "",
        customer_email: Address = "",
        product_interest: Product = "",
        status: Status = "",
        assigned_to_email: Assignee = "",
        last_contact_date_min: Day = "",
        last_contact_date_max: Day = "",
        follow_up_by_min: Day = "",
        follow_up_by_max: Day = "",
        page: Annotated[int, Field(description="Page of the result, from 1.")] = 1,
        page_size: Annotated[int, Field(description="Customers on a page.")] = 5,
    ) -> JSONObject | str:
        """Search customers; texts must occur in their fields, in any case; days are limits."""
        wanted = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        wanted = {field: text.lower() for field, text in wanted.items()}
        limits = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        limits = {field: pair for field, pair in limits.items() if any(pair)}
        if not (limits or any(wanted.values())):
            return "Give at least one thing to search for."
        for limit in itertools.chain(*limits.values()):
            if limit and (fault := day_fault(limit)):
                return fault
        found = [
            customer
            for customer in self.office.customers.rows
            if all(text in customer[field].lower() for field, text in wanted.items())
            # An empty day would compare as earlier than all others.
            and all(
                customer[field] and first <= customer[field] <= (last or "9999")
                for field, (first, last) in limits.items()
            )
        ]
        return page_of(found, "customers", page, page_size)

    @tool
    def customer_relationship_manager_update_customer(
        self,
        customer_id: CustomerId,
        field: Annotated[
            str,
            Field(
                description="Field to change: 'customer_name', 'assigned_to_email', "
                "'customer_email', 'customer_phone', 'last_contact_date', 'product_interest', "
                "'status', 'notes' or 'follow_up_by'."
            ),
        ],
        new_value: Annotated[str, Field(description="What the field shall hold.")],
    ) -> str:
        """Change one field of the customer who has an id."""
        fault = (
            _fault(field, new_value)
            if new_value
            else f"The new value of {field} must not be empty."
        )
        if field in ("customer_email", "assigned_to_email"):
            new_value = new_value.lower()
        return fault or self.office.customers.update(customer_id, field, new_value)

    @tool
    def customer_relationship_manager_add_customer(
        self,
        customer_name: Name,
        assigned_to_email: Assignee,
        status: Status,
        customer_email: Address = "",
        customer_phone: Annotated[str, Field(description="Telephone of the customer.")] = "",
        last_contact_date: Day = "",
        product_interest: Product = "",
        notes: Annotated[str, Field(description="Notes about the customer.")] = "",
        follow_up_by: Day = "",
    ) -> str:
        """Add a new customer; gives the id."""
        if not (customer_name and assigned_to_email and status):
            return "Name, assignee and status must not be empty; nobody was added."
        row = {
            "customer_name": customer_name,
            "customer_email": customer_email.lower(),
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email.lower(),
            "notes": notes,
            "follow_up_by": follow_up_by,
        }
        faults = (_fault(field, value) for field, value in row.items() if value)
        return next(filter(None, faults), "") or self.office.customers.add(row)

    @tool
    def customer_relationship_manager_delete_customer(self, customer_id: CustomerId) -> str:
        """Delete the customer who has an id."""
        return self.office.customers.delete(customer_id)


def _fault(field: str, value: str) -> str:
    """Return what is wrong with the value of a field, if anything."""
    if field == "status" and value not in STATUSES:
        return f"status must be one of {', '.join(STATUSES)}."
    if field == "product_interest" and value not in PRODUCTS:
        return f"product_interest must be one of {', '.join(PRODUCTS)}."
    return day_fault(value) if field in DAYS else ""
