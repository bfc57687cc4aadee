"""A real OPA server as production has it: over TLS, with a token that may ask for decisions and nothing else."""

import hashlib
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from remit.policies import ServerEngine
from remit.policies.revision import HERE, PLAIN, revision_of
from remit.tools.errors import Misconfigured, NoAnswer
from remit.tools.states import Verdict

from .cases import CREDIT, action, question
from .conftest import until_healthy
from .misbehaving import free_port

TOKEN = "decisions-only"
RULE = "/v1/data/remit/boundary/decisions"
ASKED = question(action(CREDIT))


@dataclass(frozen=True)
class Guarded:
    """Where the server is, and which authority signed for it."""

    url: str
    authority: Path


def signed(folder: Path) -> tuple[Path, Path, Path]:
    """A new authority, and a key and a certificate for this machine that it signed; none of them outlives the test."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl on PATH: no certificate can be made")

    def openssl(*words: str) -> None:
        subprocess.run([program, *words], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch")
    openssl(*new, "-x509", "-days", "1", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=policy", "-keyout", "key.pem", "-out", "policy.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "policy.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-days", "1", "-extfile", "names", "-out", "cert.pem"),
    )
    return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def guarded(opa: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """As the README says: our bundle, the authorization beside it, and no token but the listed one."""
    folder = tmp_path_factory.mktemp("guarded")
    authority, certificate, key = signed(folder)
    listed = {"remit_server": {"token_sha256": [hashlib.sha256(TOKEN.encode()).hexdigest()]}}
    (folder / "tokens.json").write_text(json.dumps(listed))
    bundle = {"remit": {"resource": (HERE / "bundle" / PLAIN).as_uri()}}
    (folder / "opa.json").write_text(json.dumps({"bundles": bundle}))
    url = f"https://127.0.0.1:{free_port()}"
    command = [opa, "run", "--server", "--addr", url.removeprefix("https://"), "--log-level", "error"]
    command += ["--skip-version-check", "--config-file", str(folder / "opa.json")]
    command += ["--tls-cert-file", str(certificate), "--tls-private-key-file", str(key)]
    command += ["--authentication", "token", "--authorization", "basic"]
    command += [str(HERE / "server" / "authz.rego"), str(folder / "tokens.json")]
    with subprocess.Popen(command) as server:
        try:
            until_healthy(url, ssl.create_default_context(cafile=authority))
            yield Guarded(url, authority)
        finally:
            server.terminate()


def engine_at(guarded: Guarded, token: str | None = TOKEN, trusted: Path | None = None) -> ServerEngine:
    return ServerEngine(
        guarded.url, revision=revision_of(HERE), token=token, trusted=trusted or guarded.authority
    )


async def test_it_decides_over_tls_with_the_token(guarded: Guarded) -> None:
    """The canary and a question, by the one bundle that the server holds, its own authorization notwithstanding."""
    async with engine_at(guarded) as engine:
        await engine.check()
        answer = await engine.ask(ASKED)
    assert [one.verdict for one in answer.decisions] == [Verdict.ALLOW]


@pytest.mark.parametrize("token", [None, "another", TOKEN + "x"])
async def test_without_the_right_token_it_gives_no_answer(guarded: Guarded, token: str | None) -> None:
    """Refused, and said so: no denial."""
    async with engine_at(guarded, token) as engine:
        with pytest.raises(NoAnswer) as refused:
            await engine.ask(ASKED)
    assert refused.value.code == "policy_refused"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/policies/remit"),
        ("DELETE", "/v1/policies/remit"),
        ("GET", "/v1/policies"),
        ("PUT", "/v1/data/remit/settings"),
        ("PATCH", "/v1/data/remit/settings"),
        ("GET", "/v1/data"),
        ("POST", "/v1/data/remit/settings"),
        ("POST", "/v1/data/remit_server"),
        ("PUT", RULE),
        ("POST", "/v0/data/remit/boundary/decisions"),
        ("POST", "/v1/query"),
        ("POST", "/v1/compile"),
        ("GET", "/v1/config"),
    ],
)
async def test_with_that_token_nothing_is_read_or_changed(guarded: Guarded, method: str, path: str) -> None:
    """A token that leaks from an agent cannot rewrite the policy that judges it, nor read it."""
    trusting = ssl.create_default_context(cafile=guarded.authority)
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        session.request(method, guarded.url + path, ssl=trusting, data="{}") as answer,
    ):
        assert answer.status == 401
        assert (await answer.json())["code"] == "unauthorized"


async def test_a_server_that_another_authority_signed_for_is_not_believed(
    guarded: Guarded, tmp_path: Path
) -> None:
    """Whoever answers in its place has no certificate of ours; neither has one whom the whole world trusts."""
    another, _, _ = signed(tmp_path)
    for trusted in (another, None):
        async with ServerEngine(
            guarded.url, revision=revision_of(HERE), token=TOKEN, trusted=trusted
        ) as engine:
            with pytest.raises(NoAnswer, match="REMIT_OPA_CA_FILE") as refused:
                await engine.ask(ASKED)
        assert refused.value.code == "policy_tls"


async def test_a_certificate_for_another_name_is_not_believed(guarded: Guarded) -> None:
    """The certificate names the address; the same server under another name is another one."""
    url = guarded.url.replace("127.0.0.1", "localhost")
    async with ServerEngine(
        url, revision=revision_of(HERE), token=TOKEN, trusted=guarded.authority
    ) as engine:
        with pytest.raises(NoAnswer) as refused:
            await engine.ask(ASKED)
    assert refused.value.code == "policy_tls"


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_authorities_that_holds_none_does_not_start(tmp_path: Path, content: str | None) -> None:
    """The setting is named; nothing falls back to whom the system trusts."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Misconfigured, match=r"Correct REMIT_OPA_CA_FILE\.$"):
        ServerEngine("https://127.0.0.1:1", revision=revision_of(HERE), trusted=file)


async def test_the_policy_that_a_token_tried_to_replace_still_decides(guarded: Guarded) -> None:
    """A whole policy that allows everything is put in its place, and the known deny is still one."""
    trusting = ssl.create_default_context(cafile=guarded.authority)
    policy = "package remit.boundary\n\ndecisions := []\n"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        session.put(
            f"{guarded.url}/v1/policies/boundary/decisions.rego", ssl=trusting, data=policy
        ) as answer,
    ):
        assert answer.status == 401
    async with engine_at(guarded) as engine:
        await engine.check()
