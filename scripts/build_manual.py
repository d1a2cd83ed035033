"""Build the manual: the pages of docs/ as a web site, which the server serves at /manual/ (docs/adr/0124-manual.md).

`make docs` runs it. Zensical renders the pages. Before it, links that leave the site become text, code files become
pages, and Mermaid diagrams become the pictures that scripts/diagrams.py has drawn. After it, inline scripts become
files, so that the server's content security policy need not allow them, and each file is compressed.
"""

import argparse
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "sightline" / "manual"
DIAGRAMS: Final = ROOT / "docs" / "images" / "diagrams"
PAGES: Final = ("docs/*.md", "docs/guides/*.md", "docs/machines/*.md", "docs/ops/*.md", "packages/*/README.md")
OTHER_PAGES: Final = ("ARCHITECTURE.md", "SECURITY.md")
SHOWN_FILES: Final = ("examples/*.py", "deploy/Containerfile", "deploy/*.yaml", "deploy/*.service", "deploy/*/*.yml")
"""Code that pages refer to; each becomes a page."""
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".service": "ini", "": "dockerfile"}
PICTURES: Final = ("*.png", "*.jpg", "*.svg")
NOT_SERVED: Final = {"sitemap.xml", "sitemap.xml.gz", "objects.inv"}

CODE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
LIST_ITEM: Final = re.compile(r"([-*]|\d+\.) ")
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class ManualError(Exception):
    """The manual cannot be built; the message names the page and what to do."""


def diagram_name(source: str) -> str:
    """File name of the picture of a Mermaid diagram."""
    return hashlib.sha256(source.encode()).hexdigest()[:12] + ".svg"


def page_names() -> dict[Path, str]:
    """Path of each page in the site, by its file in the repository."""
    names = {path: str(path.relative_to(ROOT / "docs")) for pattern in PAGES[:-1] for path in ROOT.glob(pattern)}
    names |= {path: f"reference/{path.parent.name}.md" for path in ROOT.glob(PAGES[-1])}
    names |= {ROOT / name: f"reference/{name.lower()}" for name in OTHER_PAGES}
    for pattern in SHOWN_FILES:
        names |= {path: f"files/{path.name}.md" for path in ROOT.glob(pattern)}
    return names


def staged(page: Path, names: dict[Path, str]) -> str:
    """The Markdown of a page as it is built.

    Raises:
        ManualError: A diagram has not been drawn.
    """
    if page.suffix != ".md":
        return f"# {page.name}\n\n```{LANGUAGES[page.suffix]}\n{page.read_text()}```\n"
    here = names[page]
    up = "../" * here.count("/")

    def drawn(found: re.Match[str]) -> str:
        name = diagram_name(found[1])
        if not (DIAGRAMS / name).exists():
            raise ManualError(
                f"{page.relative_to(ROOT)}: a Mermaid diagram has changed. Run `make diagrams`, commit {name}."
            )
        path = f"{up}images/diagrams/{name}"
        return f"[![Diagram; opens in full size]({path}){{ .diagram }}]({path})"

    def linked(found: re.Match[str]) -> str:
        mark, text, target = found.groups()
        path, hash_sign, fragment = target.partition("#")
        if not path or re.match(r"[a-z]+:|/", target):
            return found[0]
        file = (page.parent / path).resolve()
        if mark:
            return f"![{text}]({up}images/{file.relative_to(ROOT / 'docs' / 'images')})"
        return f"[{text}]({up}{names[file]}{hash_sign}{fragment})" if file in names else text

    def prepared(prose: str) -> str:
        return LINK.sub(linked, with_lists_apart(prose))

    text, parts, last = page.read_text(), [], 0
    for code in CODE.finditer(text):  # code is left as it is
        parts += [prepared(text[last : code.start()]), code[0]]
        last = code.end()
    return MERMAID.sub(drawn, "".join(parts) + prepared(text[last:]))


def with_lists_apart(prose: str) -> str:
    """Write lists as Python-Markdown, unlike GitHub, needs them: an empty line before, nested ones by four blanks."""
    lines: list[str] = []
    is_paragraph = in_list = False
    for line in prose.split("\n"):
        if LIST_ITEM.match(line):
            if is_paragraph:
                lines.append("")
            is_paragraph = False
            in_list = True
        elif not line.strip():
            is_paragraph = in_list = False
        else:
            is_paragraph = not in_list
        lines.append(re.sub(r"^ {2,3}(?=[-*] )", "    ", line) if in_list else line)
    return "\n".join(lines)


def stage(directory: Path) -> None:
    """Write what Zensical reads."""
    names = page_names()
    for page, name in names.items():
        target = directory / "docs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(staged(page, names))
    for pattern in PICTURES:
        for picture in (ROOT / "docs" / "images").rglob(pattern):
            target = directory / "docs" / "images" / picture.relative_to(ROOT / "docs" / "images")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, target)
    shutil.copytree(ROOT / "docs" / "theme", directory / "docs" / "theme")
    shutil.copy(ROOT / "zensical.toml", directory)


def publish(site: Path, target: Path) -> int:
    """Write the served files, each compressed. Returns their size in bytes."""
    shutil.rmtree(target, ignore_errors=True)
    total = 0
    scripts: dict[str, bytes] = {}
    for file in sorted(site.rglob("*")):
        name = file.relative_to(site).as_posix()
        if not file.is_file() or name in NOT_SERVED or file.suffix == ".map":
            continue
        content = file.read_bytes()
        if file.suffix == ".html":
            content = without_inline_scripts(content.decode(), name.count("/"), scripts).encode()
        total += write_compressed(target / f"{name}.gz", content)
    for name, content in scripts.items():
        total += write_compressed(target / f"{name}.gz", content)
    return total


def without_inline_scripts(page: str, depth: int, scripts: dict[str, bytes]) -> str:
    """Replace each inline script by a reference to a file, which is added to `scripts`."""

    def moved(found: re.Match[str]) -> str:
        content = found[1].encode()
        name = f"assets/inline.{hashlib.sha256(content).hexdigest()[:8]}.js"
        scripts[name] = content
        return f'<script src="{"../" * depth}{name}"></script>'

    return INLINE_SCRIPT.sub(moved, page)


def write_compressed(target: Path, content: bytes) -> int:
    """Write a file with gzip. Equal content gives equal bytes. Returns the size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(content, mtime=0)
    target.write_bytes(packed)
    return len(packed)


def main() -> int:
    """Build the manual. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", type=Path, default=TARGET, help="directory to write; default: sightline/manual")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            stage(directory)
        except ManualError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        build = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
        done = subprocess.run(build, cwd=directory, capture_output=True, text=True, check=False)  # noqa: S603  no shell
        if done.returncode != 0:
            sys.stderr.write(done.stdout + done.stderr)
            return 1
        size = publish(directory / "site", options.target)
    sys.stdout.write(f"{options.target}: {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
