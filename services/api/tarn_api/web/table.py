"""The one table of pages: method and path → handler. Paths carry names only; refs and paths of objects are parameters.

Pages are operations as those of REST, so that they are bounded, counted, audited and refused in the same way.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from tarn_api.forms import Form
from tarn_api.web.pages import (
    access,
    administration,
    annotate,
    audit,
    backups,
    collections,
    commits,
    comparing,
    content,
    documentation,
    feed,
    heads,
    history,
    objects,
    pull,
    pulls,
    quotas,
    refs,
    repositories,
    retention,
    session,
    settings,
    state,
    tasks,
    texts,
    users,
)
from tarn_rest.operations import Operation

__all__ = ["PAGES", "PUBLIC_PAGES", "PAGE_HANDLERS", "PAGE_TRANSFERS"]

Handler = Callable[..., Awaitable[object]]

_OF: Final = "/repositories/{repository}"
_PULL: Final = _OF + "/pulls/{pull}"
_ROWS: Final[tuple[tuple[str, str, str, Handler], ...]] = (
    ("web.home", "GET", "/", repositories.home),
    ("web.signInForm", "GET", "/sign-in", session.sign_in_form),
    ("web.signIn", "POST", "/sign-in", session.sign_in),
    ("web.signedIn", "GET", "/signed-in", session.signed_in),
    ("web.signOut", "POST", "/sign-out", session.sign_out),
    ("web.asset", "GET", "/assets/{version}/{name}", session.asset),
    ("web.icon", "GET", "/favicon.ico", session.icon),
    ("web.help", "GET", "/docs", documentation.index),
    ("web.helpPage", "GET", "/docs/{part}/{page}", documentation.show),
    ("web.repositories", "GET", "/repositories", repositories.home),
    ("web.createRepository", "POST", "/repositories", repositories.create),
    ("web.repository", "GET", _OF, repositories.open_repository),
    ("web.connect", "GET", f"{_OF}/connect", repositories.connect),
    ("web.branches", "GET", f"{_OF}/branches", refs.branches),
    ("web.size", "GET", f"{_OF}/size", refs.size),
    ("web.createBranch", "POST", f"{_OF}/branches", refs.create_branch),
    ("web.deleteBranch", "POST", f"{_OF}/branches/delete", refs.delete_branch),
    ("web.tags", "GET", f"{_OF}/tags", refs.tags),
    ("web.createTag", "POST", f"{_OF}/tags", refs.create_tag),
    ("web.deleteTag", "POST", f"{_OF}/tags/delete", refs.delete_tag),
    ("web.objects", "GET", f"{_OF}/objects", objects.folder),
    ("web.object", "GET", f"{_OF}/object", objects.show),
    ("web.deleteObject", "POST", f"{_OF}/objects/delete", objects.delete),
    ("web.download", "GET", f"{_OF}/download", content.download),
    ("web.picture", "GET", f"{_OF}/picture", content.picture),
    ("web.makeFolder", "POST", f"{_OF}/folders", content.make_folder),
    ("web.upload", "POST", f"{_OF}/upload", content.upload),
    ("web.uncommitted", "GET", f"{_OF}/commit", history.uncommitted),
    ("web.commit", "POST", f"{_OF}/commit", history.commit),
    ("web.annotate", "GET", f"{_OF}/annotate", annotate.show),
    ("web.log", "GET", f"{_OF}/commits", history.log),
    ("web.showCommit", "GET", _OF + "/commits/{commit}", commits.show),
    ("web.compare", "GET", f"{_OF}/compare", comparing.compare),
    ("web.mergePreview", "GET", f"{_OF}/merge", comparing.preview),
    ("web.merge", "POST", f"{_OF}/merge", comparing.merge),
    ("web.revertPreview", "GET", f"{_OF}/revert", commits.preview_revert),
    ("web.cherryPickPreview", "GET", f"{_OF}/cherry-pick", commits.preview_cherry_pick),
    ("web.revert", "POST", f"{_OF}/revert", commits.revert),
    ("web.cherryPick", "POST", f"{_OF}/cherry-pick", commits.cherry_pick),
    ("web.movePreview", "GET", f"{_OF}/move", heads.preview),
    ("web.move", "POST", f"{_OF}/move", heads.move),
    ("web.feed", "GET", f"{_OF}/feed", feed.show),
    ("web.reflog", "GET", f"{_OF}/reflog", heads.reflog),
    ("web.deletedBranches", "GET", f"{_OF}/branches/deleted", heads.deleted),
    ("web.restoreBranch", "POST", f"{_OF}/branches/restore", heads.restore),
    ("web.difference", "GET", f"{_OF}/difference", texts.difference),
    ("web.settings", "GET", f"{_OF}/settings", settings.show),
    ("web.protect", "POST", f"{_OF}/settings/protect", settings.protect),
    ("web.unprotect", "POST", f"{_OF}/settings/unprotect", settings.unprotect),
    ("web.hide", "POST", f"{_OF}/settings/hide", settings.hide),
    ("web.unhide", "POST", f"{_OF}/settings/unhide", settings.unhide),
    ("web.setReadOnly", "POST", f"{_OF}/settings/read-only", settings.set_read_only),
    ("web.setDefaultBranch", "POST", f"{_OF}/settings/default", settings.set_default_branch),
    ("web.setMetadata", "POST", f"{_OF}/settings/metadata", settings.set_metadata),
    ("web.unsetMetadata", "POST", f"{_OF}/settings/metadata/remove", settings.unset_metadata),
    ("web.createView", "POST", f"{_OF}/settings/views", settings.create_view),
    ("web.pointView", "POST", f"{_OF}/settings/views/point", settings.point_view),
    ("web.publishView", "POST", f"{_OF}/settings/views/publish", settings.publish_view),
    ("web.deleteView", "POST", f"{_OF}/settings/views/delete", settings.delete_view),
    ("web.retention", "GET", f"{_OF}/retention", retention.show),
    ("web.previewRetention", "POST", f"{_OF}/retention/preview", retention.preview),
    ("web.setRetention", "POST", f"{_OF}/retention", retention.save),
    ("web.state", "GET", f"{_OF}/state", state.show),
    ("web.collections", "GET", f"{_OF}/state/collections", collections.show),
    ("web.compact", "POST", f"{_OF}/state/compact", state.compact),
    ("web.holdCollection", "POST", f"{_OF}/state/hold", state.hold),
    ("web.tasks", "GET", f"{_OF}/tasks", tasks.tasks),
    ("web.task", "GET", f"{_OF}/task", tasks.show),
    ("web.cancelTask", "POST", f"{_OF}/tasks/cancel", tasks.cancel),
    ("web.administration", "GET", "/administration", administration.administration),
    ("web.pauseCompaction", "POST", "/administration/pause", administration.pause),
    ("web.resumeCompaction", "POST", "/administration/resume", administration.resume),
    ("web.quotas", "GET", "/quotas", quotas.quotas),
    ("web.setQuota", "POST", "/quotas", quotas.set_quota),
    ("web.access", "GET", "/access", access.check),
    ("web.audit", "GET", "/audit", audit.search),
    ("web.backups", "GET", "/backups", backups.show),
    ("web.account", "GET", "/account", users.account),
    ("web.users", "GET", "/users", users.users),
    ("web.createUser", "POST", "/users", users.create_user),
    ("web.user", "GET", "/user", users.show),
    ("web.setRoles", "POST", "/user/roles", users.set_roles),
    ("web.deleteUser", "POST", "/user/delete", users.delete_user),
    ("web.createKey", "POST", "/user/keys", users.create_key),
    ("web.deleteKey", "POST", "/user/keys/delete", users.delete_key),
    ("web.endSessions", "POST", "/user/sessions/end", users.end_sessions),
    ("web.endSessionKey", "POST", "/user/session-keys/end", users.end_session_key),
    ("web.pulls", "GET", f"{_OF}/pulls", pulls.show),
    ("web.newPull", "GET", f"{_OF}/pulls/new", pulls.new),
    ("web.createPull", "POST", f"{_OF}/pulls", pulls.create),
    ("web.pull", "GET", _PULL, pull.show),
    ("web.pullChanges", "GET", f"{_PULL}/changes", pull.changes),
    ("web.commentPull", "POST", f"{_PULL}/comment", pull.comment),
    ("web.reviewPull", "POST", f"{_PULL}/review", pull.review),
    ("web.dismissReview", "POST", f"{_PULL}/dismiss", pull.dismiss),
    ("web.editPull", "POST", f"{_PULL}/edit", pull.edit),
    ("web.closePull", "POST", f"{_PULL}/close", pull.close),
    ("web.reopenPull", "POST", f"{_PULL}/reopen", pull.reopen),
    ("web.mergePull", "POST", f"{_PULL}/merge", pull.merge),
)

PAGE_HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {name: handler for name, _, _, handler in _ROWS}
)
PUBLIC_PAGES: Final = frozenset(
    {
        "web.signInForm",
        "web.signIn",
        "web.signedIn",
        "web.signOut",
        "web.asset",
        "web.icon",
        "web.help",
        "web.helpPage",
    }
)
"""Pages without a caller: what leads to a session, and ends one; the documentation, which says how to get a key."""
PAGE_TRANSFERS: Final = frozenset({"web.download", "web.picture", "web.upload"})
"""Pages that move bytes of objects."""


def _operation(name: str, method: str, path: str, handler: Handler) -> Operation:
    """Returns the row of a page: its parameters and its form are those of the handler."""
    hints = typing.get_type_hints(handler)
    return Operation(
        id=name,
        method=method,
        path=path,
        status=200,
        parameters=hints["at"],
        headers=frozenset(),
        lists=frozenset(),
        body=hints.get("form"),
        is_body_required="form" in hints,
        is_raw=hints.get("form") is not Form and method == "POST",
        answer=str,
        is_public=name in PUBLIC_PAGES,
    )


PAGES: Final = tuple(_operation(*row) for row in _ROWS)
