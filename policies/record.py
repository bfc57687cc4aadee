"""A question as it is kept beside its decision, and read again. DESIGN section 7.

Keeps I9 for decisions: what is explained later is the question that was asked, told by its hash, and not a new one.
"""

import json

from pydantic import ValidationError

from remit.tools.actions import Json, canonical_hash
from remit.tools.errors import Refused
from remit.tools.questions import Agent, Context, Question


def context_document(agent: Agent, context: Context) -> dict[str, Json]:
    """Who asked and what held for the whole batch. The mandate is left to its hash: it is stored once for all runs."""
    return {
        "subject": agent.model_dump(mode="json"),
        "context": context.model_dump(mode="json", exclude={"mandate"}),
    }


def kept_question(
    hash_: str, document: dict[str, Json], mandate: dict[str, Json], evaluation: dict[str, Json]
) -> Question:
    """The question about one action, as it was asked. Raises Refused where what was kept is not what was asked."""
    try:
        if canonical_hash(document) != hash_:
            raise ValueError("the kept context has another hash")
        context = {**document["context"], "mandate": mandate}
        whole = {"subject": document["subject"], "context": context, "evaluations": [evaluation]}
        return Question.model_validate_json(json.dumps(whole))
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"The kept question of this decision cannot be read ({str(error).splitlines()[0]}). Restore the database "
            "from a backup, and compare the journal.",
            code="question",
        ) from error
