"""The tools for the company directory and the e-mails."""

from typing import Annotated

from pydantic import Field

from gymcli import JSONObject, tool

from .tables import NOW, Office, Row, day_fault, page_of

__all__ = ["EmailTools"]

MAX_WORDS = 100
"""The number of different words in a query: more than any search needs, few enough to be fast."""

EmailId = Annotated[str, Field(description="Id of the e-mail, eight digits.")]
Body = Annotated[str, Field(description="Text of the e-mail.")]
Recipient = Annotated[str, Field(description="E-mail address that it goes to.")]


class EmailTools:
    """Finds addresses; reads, sends and deletes e-mails."""

    office: Office

    @tool(reads_only=True)
    def company_directory_find_email_address(
        self, name: Annotated[str, Field(description="A name or a part of one.")] = ""
    ) -> list[str] | str:
        """Find the e-mail addresses in the company that contain a name, in any case."""
        if not name:
            return "Give the name to look for."
        found = [known for known in self.office.addresses if name.lower() in known.lower()]
        return found or f"No address contains {name!r}."

    @tool(reads_only=True)
    def email_get_email_information_by_id(
        self,
        email_id: EmailId,
        field: Annotated[
            str,
            Field(
                description="Field to give: 'email_id', 'inbox/outbox', 'sender/recipient', "
                "'subject', 'sent_datetime' or 'body'."
            ),
        ],
    ) -> JSONObject | str:
        """Give one field of the e-mail that has an id."""
        return self.office.emails.read(email_id, field)

    @tool(reads_only=True)
    def email_search_emails(
        self,
        query: Annotated[
            str, Field(description="Words that subject, body or sender/recipient must contain.")
        ] = "",
        date_min: Annotated[str, Field(description="First day, as YYYY-MM-DD.")] = "",
        date_max: Annotated[str, Field(description="Last day, as YYYY-MM-DD.")] = "",
        page: Annotated[int, Field(description="Page of the result, from 1.")] = 1,
        page_size: Annotated[int, Field(description="E-mails on a page.")] = 5,
    ) -> JSONObject | str:
        """Search e-mails, the newest first; every word of the query must occur, in any case."""
        for limit in (date_min, date_max):
            if limit and (fault := day_fault(limit)):
                return fault
        words = set(query.lower().split())
        if len(words) > MAX_WORDS:
            return f"A query may have {MAX_WORDS} different words at most."
        found = [
            email
            for email in self.office.emails.rows
            if date_min <= email["sent_datetime"][:10] <= (date_max or "9999")
            and _has_all(email, words)
        ]
        # `sort` is stable, in reverse too: e-mails of the same second keep their order.
        found.sort(key=lambda email: email["sent_datetime"], reverse=True)
        return page_of(found, "emails", page, page_size)

    @tool
    def email_send_email(
        self,
        recipient: Recipient,
        subject: Annotated[str, Field(description="Subject of the e-mail.")],
        body: Body,
    ) -> str:
        """Send a new e-mail to one address."""
        return self._send(recipient, subject, body)

    @tool
    def email_delete_email(self, email_id: EmailId) -> str:
        """Delete the e-mail that has an id."""
        return self.office.emails.delete(email_id)

    @tool
    def email_forward_email(self, email_id: EmailId, recipient: Recipient) -> str:
        """Forward the e-mail that has an id to one address."""
        email = self.office.emails.find(email_id)
        if email is None:
            return self.office.emails.missing(email_id)
        return self._send(recipient, f"FW: {email['subject']}", email["body"])

    @tool
    def email_reply_email(self, email_id: EmailId, body: Body) -> str:
        """Answer the e-mail that has an id; the answer goes to its sender or recipient."""
        email = self.office.emails.find(email_id)
        if email is None:
            return self.office.emails.missing(email_id)
        return self._send(email["sender/recipient"], f"RE: {email['subject']}", body)

    def _send(self, recipient: str, subject: str, body: str) -> str:
        if not (recipient and subject and body):
            return "Recipient, subject and body must not be empty; nothing was sent."
        if "@" not in recipient or "." not in recipient:
            return f"{recipient!r} is no e-mail address; nothing was sent."
        identity = self.office.emails.add(
            {
                "inbox/outbox": "outbox",
                "sender/recipient": recipient.lower(),
                "subject": subject,
                "sent_datetime": NOW,
                "body": body,
            }
        )
        return f"The e-mail was sent to {recipient.lower()}; its id is {identity}."


def _has_all(email: Row, words: set[str]) -> bool:
    searched = f"{email['subject']} {email['body']} {email['sender/recipient']}".lower()
    return all(word in searched for word in words)
