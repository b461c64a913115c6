"""Library packs: scripts from npm that hooks may use, bundled and stored."""
