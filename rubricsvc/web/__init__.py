"""Pages: self-contained HTML, rendered from values by templates. They need no script and load nothing."""
