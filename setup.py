"""Metadata that setup.cfg cannot hold: the README with links that also work outside the repository."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme() -> str:
    """Return README.md with every link to a file of the repository as an absolute address."""
    config = ConfigParser()
    config.read(HERE / "setup.cfg", encoding="utf-8")
    source = dict(
        line.split(" = ") for line in config["metadata"]["project_urls"].strip().splitlines()
    )["Source"]
    code = (HERE / "certify_assets" / "_version.py").read_text("utf-8")
    version = re.search(r'__version__ = "(.*)"', code)[1]
    text = (HERE / "README.md").read_text("utf-8")
    # an image needs the file itself, a page the view of it
    text = re.sub(r"!\[([^\]]*)\]\((?!https?:|#)", rf"![\1]({source}/raw/v{version}/", text)
    return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)", rf"[\1]({source}/blob/v{version}/", text)


setup(long_description=readme(), long_description_content_type="text/markdown")
