"""The feed of a branch: what happens on it, as a stream of Server-Sent Events.

`docs/design/web-interface.md`, "The feed", says what is decided. One channel of each process looks at a branch for all
of its viewers, with the token of one of them. It decides no permission: graveler refuses who may not read the branch,
and each viewer's own right is checked again and again (`viewers`).
"""
