"""The contestants: one folder each under tools/peers, described by its peer.ini (see tools/peers/README.md)."""

from __future__ import annotations

import configparser
import dataclasses
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Optional

from measure import Ab, ServerSpec
from measure.machine import version_of
from measure.server import fill

from .workloads import PROFILES, Workload

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tools" / "peers"
BUILD = ROOT / "build" / "peers"
SYSTEM_PATHS = "/usr/local/sbin:/usr/sbin:/sbin"        # nginx and haproxy live there, and not on everybody's PATH
FAIRNESS_KEYS = ("event_loop", "access_log", "keep_alive_limit", "note")


class PeerError(Exception):
    """A peer.ini cannot be used; the text is one sentence."""


@dataclasses.dataclass
class Peer:
    """One contestant."""
    name: str
    title: str
    order: int
    command: list[str]
    header_format: str = ""
    files: dict[str, str] = dataclasses.field(default_factory=dict)     # name in {work} -> template
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    stop_signal: int = signal.SIGTERM
    version_command: list[str] = dataclasses.field(default_factory=list)
    missing: str = ""                   # why it cannot run here, and the line that gets it; empty if it can
    get: str = ""
    fairness: dict[str, str] = dataclasses.field(default_factory=dict)
    folder: Optional[Path] = None       # None: the reader's own, from the command line
    control_of: str = ""                # the A/A control's twin
    _version: Optional[str] = None

    @property
    def own(self) -> bool:
        """Given with --server: any 200 answer will do, as long as it is true to itself."""
        return self.folder is None and not self.control_of

    def version(self) -> str:
        """The version line, asked for once."""
        if self._version is None:
            values = {"root": str(ROOT), "build": str(BUILD), "peer": str(self.folder or "")}
            environment = {name: fill(value, values) for name, value in self.environment.items()}
            self._version = version_of([fill(word, values) for word in self.version_command],
                                       environment) if self.version_command else ""
        return self._version

    def spec(self, workload: Workload) -> ServerSpec:
        """How to start it for a workload: body, headers and closing behaviour differ."""
        profile = PROFILES[workload.profile]
        values = {"root": str(ROOT), "build": str(BUILD), "peer": str(self.folder or ""), "body": profile.body,
                  "type": profile.type, "mode": workload.mode, "answer": "{work}/answer"}
        headers = [fill(self.header_format, {"name": name, "value": value.replace('"', '\\"')}) for name, value in profile.headers
                   ] if self.header_format else []
        command: list[str] = []
        for word in self.command:
            if word == "{headers}":
                command += shlex.split(" ".join(headers))
            else:
                command.append(fill(word, values))
        templates = {name: fill(text, {**values, "headers": " ".join(headers)}) for name, text in self.files.items()}
        if any("{work}/answer" in word for word in command):
            templates["answer"] = whole_answer(workload)
        environment = {name: fill(value, values) for name, value in self.environment.items()}
        environment.update({
            "CEILING_PORT": "{port}", "CEILING_WORKERS": "{workers}", "CEILING_BODY": profile.body, "CEILING_TYPE": profile.type,
            "CEILING_HEADERS": "\n".join(f"{name}: {value}" for name, value in profile.headers),
            "CEILING_CLOSE": "1" if workload.mode == "close" else "0",
            "PATH": os.environ.get("PATH", "") + ":" + SYSTEM_PATHS,
        })
        return ServerSpec(name=self.name, command=command, environment=environment, files=templates, stop_signal=self.stop_signal)


def whole_answer(workload: Workload) -> str:
    """The bytes of a complete answer, for a contestant that sends a file: the headers ./server sends, in its order."""
    profile = PROFILES[workload.profile]
    lines = ["HTTP/1.1 200 OK", "Date: Mon, 30 Nov 2026 00:00:00 GMT"]
    if workload.mode == "close":
        lines.append("Connection: close")
    elif isinstance(workload.client, Ab):
        lines.append("Connection: keep-alive")
    lines += [f"Content-Type: {profile.type}", *(f"{name}: {value}" for name, value in profile.headers),
              f"Content-Length: {len(profile.body)}"]
    return "\r\n".join(lines) + "\r\n\r\n" + profile.body


def load_peers(folder: Path = PEERS) -> list[Peer]:
    """Every contestant that has a peer.ini, in order. Raises PeerError on a manifest that cannot be understood."""
    peers = [read_peer(path) for path in sorted(folder.glob("*/peer.ini"))]
    extensions: Optional[set[str]] = None
    for peer in peers:
        parser = _parse(peer.folder / "peer.ini")
        needs = dict(parser["needs"]) if parser.has_section("needs") else {}
        if "php_extensions" in needs and extensions is None:
            extensions = php_extensions()
        peer.get = needs.get("get", "")
        peer.missing = _missing(peer, needs, extensions or set())
    return sorted(peers, key=lambda peer: (peer.order, peer.name))


def read_peer(path: Path) -> Peer:
    """One manifest."""
    parser = _parse(path)
    name = path.parent.name
    if not parser.has_section("peer") or "command" not in parser["peer"]:
        raise PeerError(f"{path}: a [peer] section with a command is needed")
    section = parser["peer"]
    try:
        files = {file: (path.parent / file).read_text() for file in section.get("files", "").split()}
        stop_signal = signal.Signals[section.get("stop_signal", "SIGTERM")]
        order = section.getint("order", 1000)
    except (OSError, KeyError, ValueError) as error:
        raise PeerError(f"{path}: {error}") from error
    version = section.get("version_from") or section.get("version") or ""
    return Peer(name=name, title=section.get("title", name), order=order, command=shlex.split(section["command"]),
                header_format=section.get("header_format", ""), files=files, stop_signal=stop_signal,
                environment=dict(parser["environment"]) if parser.has_section("environment") else {},
                version_command=shlex.split(version), folder=path.parent,
                fairness={key: parser["fairness"][key] for key in FAIRNESS_KEYS if key in parser["fairness"]}
                if parser.has_section("fairness") else {})


def own_server(text: str) -> Peer:
    """The reader's own contestant, from `name=command`. Raises PeerError with a sentence."""
    name, equals, command = text.partition("=")
    if not equals or not name.strip().replace("-", "").replace("_", "").isalnum():
        raise PeerError(f"--server wants name=command, the name of letters, digits, - and _; got '{text}'")
    if "{port}" not in command:
        raise PeerError(f"--server {name}: the command must say where the port goes: {{port}}")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise PeerError(f"--server {name}: {error}") from error
    return Peer(name=name.strip(), title=name.strip(), order=25, command=words, fairness={"note": "the reader's own"},
                header_format='--header "{name}: {value}"')


def control(peer: Peer) -> Peer:
    """The same contestant entered a second time: what differs between the two is noise."""
    return dataclasses.replace(peer, name=f"{peer.name}-again", title=f"{peer.title} again (A/A)",
                               order=peer.order + 1, control_of=peer.name)


def php_extensions() -> set[str]:
    """What `php -m` lists."""
    try:
        done = subprocess.run(["php", "-m"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return set()
    return {line.strip().lower() for line in done.stdout.splitlines()}


def _parse(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    parser.optionxform = str            # environment names keep their case
    try:
        parser.read_string(path.read_text())
    except (OSError, configparser.Error) as error:
        raise PeerError(f"{path}: {error}".replace("\n", " ")) from error
    return parser


def _missing(peer: Peer, needs: dict[str, str], extensions: set[str]) -> str:
    """One sentence for the first thing that is missing: what tools/peers/setup found out, if it tried, is the best one."""
    values = {"root": str(ROOT), "build": str(BUILD), "peer": str(peer.folder)}
    lacks = ""
    for program in needs.get("programs", "").split():
        if not _which(program):
            lacks = lacks or f"{program} is not installed"
    for extension in needs.get("php_extensions", "").split():
        if extension.lower() not in extensions:
            lacks = lacks or f"PHP has no extension {extension} (php -m does not list it)"
    for file in needs.get("files", "").split():
        path = Path(fill(file, values))
        if not path.exists():
            lacks = lacks or f"{_shown(path)} is not there"
    if not lacks:
        return ""
    tried = _setup_reason(peer)
    if tried:
        return tried
    return lacks + (f": {needs['get']}" if "get" in needs else "")


def _setup_reason(peer: Peer) -> str:
    """Why tools/peers/setup could not get it (contestants on the same extension share the reason)."""
    names = [peer.name] + (["swoole"] if peer.name.startswith("swoole") else [])
    for name in names:
        try:
            return (BUILD / name / "missing").read_text().strip()
        except OSError:
            continue
    return ""


def _which(program: str) -> bool:
    paths = (os.environ.get("PATH", "") + ":" + SYSTEM_PATHS).split(":")
    return any(os.access(Path(folder) / program, os.X_OK) for folder in paths if folder)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
