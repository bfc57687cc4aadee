"""The scenes of the demo, in the order in which they are played. Each ends by itself or raises WentOtherwise."""

import os
import re

from remit.console.screen import say
from remit.console.stage import Command, Stage, WentOtherwise

_LOST_REPLY = (
    "sandbox",
    "fault",
    "add",
    "payments",
    "reply_lost",
    "POST /credits",
    "--match",
    "customer=c-104",
)
_FIRST, _SECOND = "outage-0611", "outage-0619"


async def bare_agent(stage: Stage) -> None:
    """A naive script, and a reply that gets lost."""
    stage.scene(1, "A bare agent, and a reply that gets lost")
    say(
        "A pretended company starts on this machine: accounts, payments, e-mail, and a model that plays a script."
    )
    await stage.remit("sandbox", "up")
    say("The payments provider will take the credit of customer 104, and its answer will be lost once.")
    await stage.remit(*_LOST_REPLY)
    say("A naive script gives three customers 10 dollars each. This is what it believes:")
    stage.show("\n".join(await _play_bare_agent(stage)))
    say("And this is the provider's own record of customer 104:")
    output = await stage.remit("sandbox", "dump", "credits", "--customer", "104")
    if output.count('"amount_minor"') != 2:
        raise WentOtherwise("The bare agent was to give customer 104 two credits.", code="story")
    say("Two credits: no answer was taken for no effect. Retrying is not recovery.")
    await stage.remit("sandbox", "check", _FIRST, expected=(1,))


async def _play_bare_agent(stage: Stage) -> list[str]:
    from remit.sandbox import bare_agent, credentials, info

    company = info(stage.home)
    if company is None:
        raise WentOtherwise("The company does not run.", code="story")
    customers = ("c-103", "c-104", "c-107")
    return await bare_agent.run(company.urls, credentials(stage.home), customers)


async def delegation(stage: Stage) -> str:
    """A mandate, a run, and a process that is gone. Returns the run."""
    stage.scene(2, "Remit, with the same fault: a mandate, and a run that needs a person")
    await stage.remit("sandbox", "reset", "--yes")
    await stage.remit(*_LOST_REPLY)
    say("The support manager delegates. What is granted is read back in words, from what will be enforced:")
    await stage.remit("mandate", "grant", f"mandates/{_FIRST}.yaml", "--token", "support-manager", "--yes")
    say("The agent plans and proposes. 24 credits are more than the mandate lets it do without asking:")
    running = await stage.begin("run", _FIRST, "--token", "support-manager")
    output = await running.finished((3,))
    stage.show(output)
    if "PAUSED_AWAITING_APPROVAL" not in output:
        raise WentOtherwise("The run was to wait for an approval.", code="story")
    say(f"Exit code 3: paused. {_gone(running)} The pause is in the database, not in a process:")
    await stage.remit("runs")
    return _named(r"run-[0-9a-z]+", output)


def _named(pattern: str, output: str) -> str:
    """What a command named: the id that the next one needs."""
    found = re.search(pattern, output)
    if found is None:
        raise WentOtherwise(f"There was to be a {pattern} in: {output[-500:]}", code="story")
    return found[0]


def _gone(command: Command) -> str:
    try:
        os.kill(command.pid, 0)
    except ProcessLookupError:
        return f"Process {command.pid}, which ran it, is gone."
    raise WentOtherwise(f"Process {command.pid} was to be gone.", code="story")


async def approval(stage: Stage) -> None:
    """The grantor may not approve; the finance lead, in another process, may."""
    stage.scene(3, "One approval, by somebody outside the chain")
    id_ = _named(r"ap-[0-9a-z]+", await stage.remit("inbox"))
    say("Who delegated may not approve, at any amount:")
    await stage.remit("approve", id_, "--token", "support-manager", expected=(1,), last=1)
    say("The finance lead looks at the same set and decides about exactly that set:")
    await stage.remit(
        "approve", id_, "--token", "finance-lead", "--because", "24 customers, 240 dollars", last=2
    )


async def recovery(stage: Stage, run: str) -> None:
    """A new process carries on: the lost reply, the denied date, the mails in their window."""
    stage.scene(4, "A new process carries on")
    carrying = await stage.begin("resume", run, "--wait")
    say(
        "While it works: e-mails wait for their credit, and then for a short window in which they can be kept back."
    )

    async def settled() -> bool:
        return any(credit["status"] == "settled" for credit in _credits(stage, _FIRST))

    await stage.until("A settled credit", settled)
    await stage.remit("holds", lines=5)
    stage.show(await carrying.finished())
    say(
        "The credit of customer 104: its reply was lost, so its outcome was unknown, and nobody sent it again."
    )
    say("The provider was asked, by the reference that the credit carries:")
    await _excerpt(stage, f"{_FIRST}/credit/customer:c-104/1", ("  attempt ", "  evidence for "))
    say("The agent also tried to move a subscription date, which nobody had delegated. Policy denied it:")
    await _excerpt(stage, f"{_FIRST}/annotate/customer:c-104/1", ("CLOSED (denied",))
    say("The company's own records, judged without a look at Remit's ledger:")
    await stage.remit("sandbox", "check", _FIRST, "--final")


async def _excerpt(stage: Stage, key: str, words: tuple[str, ...]) -> None:
    """The lines of one trace that hold one of these words."""
    output = await (await stage.begin("show", key)).finished()
    lines = [line for line in output.splitlines() if any(word in line for word in words)]
    if not lines:
        raise WentOtherwise(f"The trace of {key} was to hold {' or '.join(words)}.", code="story")
    stage.show("\n".join(lines))


async def stop(stage: Stage) -> None:
    """A second campaign, stopped in the middle, while the provider goes on settling."""
    stage.scene(5, "A second campaign, stopped in the middle")
    running = await _second_campaign(stage)
    say("The first credits are at the provider. Somebody presses Stop:")
    await stage.remit("stop", "all", "--because", "wrong incident?", "--token", "support-manager")
    say("The agent is stopped. That is a fact about the agent. What can we tell customer 104?")
    await stage.remit("status", "104", "--tell")
    say("Beside it, the provider's own record:")
    await stage.remit("sandbox", "dump", "credits", "--customer", "104")
    say("This is how the run, in its own process, came to its end:")
    stage.show(await running.finished((3, 4)))

    async def settled() -> bool:
        return all(credit["status"] == "settled" for credit in _credits(stage, _SECOND))

    await stage.until("The provider's settlement", settled)
    say(
        "The provider went on by itself, as providers do. Asked again, there is another answer, and it is true again:"
    )
    told = await stage.remit("status", _SECOND, lines=7)
    if f"credit: {len(_credits(stage, _SECOND))} COMPLETED" not in told:
        raise WentOtherwise("The status was to show what the provider had settled.", code="story")
    await stage.remit("sandbox", "check", _SECOND)


async def _second_campaign(stage: Stage) -> Command:
    """A run that is under way: its first credits have reached a provider that answers and settles slowly."""
    say("This time the provider settles slowly, and answers slowly.")
    for kind, seconds in (("slow_settle", "7"), ("delay_after", "3")):
        rule = ("payments", kind, "POST /credits", "--times", "0", "--seconds", seconds)
        await stage.remit("sandbox", "fault", "add", *rule)
    words = ("mandate", "grant", f"mandates/{_SECOND}.yaml", "--token", "support-manager", "--yes")
    await stage.remit(*words, lines=4)
    running = await stage.begin("run", _SECOND, "--token", "support-manager")

    async def sending() -> bool:
        return len(_credits(stage, _SECOND)) > 0

    await stage.until("A credit of the second campaign", sending)
    return running


def _credits(stage: Stage, incident: str) -> list[dict[str, object]]:
    """The provider's credits of one campaign, by its own record."""
    from remit.sandbox import dump

    return [credit for credit in dump(stage.home)["credits"] if credit["reason"] == incident]
