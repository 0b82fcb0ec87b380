"""Several servers on one machine: none takes the address of another away, and none is told of before it serves."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.service.conftest import until
from tests.service.test_serve import Begin, begin, cranny, env  # noqa: F401 - fixtures

from cranny.cli import written
from cranny.cli.tls import check_pair
from cranny.cli.written import written_down
from cranny.model.errors import InputError
from cranny.service.whereabouts import Known


def test_the_first_server_is_known_again_when_the_second_has_ended(
    begin: Begin,  # noqa: F811
    env: dict[str, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    file = tmp_path / "state" / "cranny" / "server.json"
    _, first = begin("--cluster", "1x1x1")
    known = file.read_text()
    other = ("--cluster", "1x1x2", "--folder", str(tmp_path / "other"))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    ran = cranny(env, "serve", *other, "--tls-certificate", str(wrong), "--tls-key", str(wrong))
    told = f"cranny: --tls-certificate: {wrong}: holds no certificate in the form PEM\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)
    assert file.read_text() == known

    process, second = begin(*other)
    assert json.loads(file.read_text())["url"] == second["url"]
    assert (tmp_path / "other" / "server.json").read_text() == file.read_text()
    until(lambda: written._serves(Known(second["url"], None)))
    process.terminate()
    assert process.wait(20) == 0
    assert file.read_text() == known
    assert not (tmp_path / "other" / "server.json").exists()
    ran = cranny(env, "nodes", "--json")
    assert (ran.returncode, len(json.loads(ran.stdout))) == (0, 1)
    assert first["url"] in known


def test_a_server_that_ends_leaves_the_file_of_a_later_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, first, second = (Known(f"http://127.0.0.1:{port}", f"token-{port}") for port in (1, 2, 3))
    up = {first}
    monkeypatch.setattr(written, "_serves", lambda known: known in up)
    file = tmp_path / "server.json"
    with written_down(tmp_path, old):
        pass
    assert not file.exists()
    file.write_text(json.dumps(old._asdict()))  # it was killed
    one = written_down(tmp_path, first)
    two = written_down(tmp_path, second)
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert json.loads(file.read_text()) == second._asdict()
    up.clear()
    two.__exit__(None, None, None)
    assert not file.exists()  # neither serves any more
    file.write_text("spoilt")
    with written_down(tmp_path, first):
        assert json.loads(file.read_text()) == first._asdict()
    assert not file.exists()


def test_nobody_serves_where_nobody_listens() -> None:
    assert not any(written._serves(Known(url, None)) for url in ("http://127.0.0.1:1", "http://[", "nothing"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=tmp_path, timeout=60)

    openssl("req -x509 -newkey ed25519 -nodes -keyout key -out cert -subj /CN=localhost -days 2")
    openssl("genpkey -algorithm ed25519 -out other")
    openssl("pkey -in key -aes256 -passout pass:x -out locked")
    for name in ("cert", "key"):
        (tmp_path / f"cut-{name}").write_text((tmp_path / name).read_text()[:80])
    check_pair(tmp_path / "cert", tmp_path / "key")
    for certificate, key, problem in (
        ("cert", "other", f"--tls-key: {tmp_path}/other: does not belong to {tmp_path}/cert"),
        ("cert", "locked", f"--tls-key: {tmp_path}/locked: is locked with a password; give one that is not"),
        ("cut-cert", "key", f"--tls-certificate: {tmp_path}/cut-cert: is damaged"),
        ("cert", "cut-key", f"--tls-key: {tmp_path}/cut-key: is damaged"),
        ("cert", "cert", f"--tls-key: {tmp_path}/cert: holds no private key in the form PEM"),
        ("none", "key", f"--tls-certificate: {tmp_path}/none: No such file or directory"),
    ):
        with pytest.raises(InputError) as refused:
            check_pair(tmp_path / certificate, tmp_path / key)
        assert str(refused.value) == problem
