"""What a graph is built from. Nothing is global; everything enters through `build_graph(deps)`."""

import json
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from remit.checkpoints import Database, Ledger
from remit.graph.model import Model
from remit.policies import PolicyEngine
from remit.tools.actions import canonical_hash
from remit.tools.catalogue import Catalogue
from remit.tools.mandates import Mandate
from remit.tools.ports import Lease
from remit.tools.questions import Agent, Link
from remit.tools.runner import Runner
from remit.tools.transport import Transport


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a run ends by name: `plans` turns of the model, `tokens` in all. After `reads` it reads no more."""

    plans: int = 12
    tokens: int = 200_000
    reads: int = 40


@dataclass(frozen=True, slots=True)
class Deps:
    """The parts of one agent process."""

    database: Database
    ledger: Ledger
    catalogue: Catalogue
    transport: Transport
    runner: Runner
    policy: PolicyEngine
    model: Model
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run as its nodes see it: the lease under which they act, the mandate, and the chain behind the agent."""

    lease: Lease
    purpose: str
    mandate_hash: str
    mandate: Mandate
    agent: Agent
    tokens_used: int
    order_id: int | None
    mandate_live: bool
    superseded: bool
    revoked: bool

    @property
    def run_id(self) -> str:
        return self.lease.run_id


async def load_run(database: Database, lease: Lease) -> RunContext:
    """Read the run afresh: authority is never remembered from an earlier step (F21)."""
    row = await database.row("run", run=lease.run_id)
    assert row is not None, "a lease exists only for a run"
    chain = (
        Link(part="grantor", person=row["grantor"], role=row["grantor_role"]),
        Link(part="requester", person=row["requester"], role="requester"),
        Link(part="owner", person=row["owner"], role="owner"),
    )
    return RunContext(
        lease=lease,
        purpose=row["purpose"],
        mandate_hash=row["mandate_hash"],
        mandate=Mandate.model_validate_json(json.dumps(row["document"])),
        agent=Agent(id=row["agent"], version=row["agent_version"], chain=chain),
        tokens_used=row["tokens_used"],
        order_id=row["order_id"],
        mandate_live=row["mandate_live"],
        superseded=row["superseded_at"] is not None,
        revoked=row["revoked_at"] is not None,
    )


async def step_facts(database: Database, mandate: Mandate, mandate_hash: str) -> dict[str, dict[str, int]]:
    """The ledger's facts: subjects of the mandate by step and fact."""
    steps: dict[str, dict[str, int]] = {step.name: {} for step in mandate.steps}
    rows = await database.rows("step_facts", steps=list(steps), mandate=mandate_hash, purpose=mandate.purpose)
    for row in rows:
        facts = steps[row["step"]]
        facts[row["fact"]] = facts.get(row["fact"], 0) + row["count"]
    return steps


def agent_version(deps: Deps, fingerprint: str, prompt: str) -> str:
    """Twelve hex digits over prompt, model, catalogue, policy, graph and code: the first question after an incident."""
    try:
        code = version("remit")
    except PackageNotFoundError:
        code = "source"
    parts: dict[str, Any] = {
        "prompt": prompt,
        "model": deps.model.name,
        "catalogue": deps.catalogue.version,
        "policy": deps.policy.revision,
        "graph": fingerprint,
        "code": code,
    }
    return canonical_hash(parts).removeprefix("v1:")[:12]
