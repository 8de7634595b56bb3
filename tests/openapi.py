"""The OpenAPI document of the service; ``python -m tests.openapi`` writes it to docs/openapi.json."""

from __future__ import annotations

import json
from pathlib import Path

from rubricsvc.api.app import create_app
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database

SNAPSHOT = Path(__file__).parents[1] / "docs" / "openapi.json"


def document() -> str:
    """Return the OpenAPI document of this version."""
    app = create_app(Settings(), Database("sqlite:///unused.db"))
    return json.dumps(app.openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(document(), encoding="utf-8")
