"""The web interface: pages for people, beside the REST interface, with the same callers, rights and bounds.

`docs/design/web-interface.md` says what is decided. A page is an operation like those of REST: a row in `table`, a
handler in `pages/`, a template in `templates/`. Handlers call graveler with the caller's token.
"""
