"""Doubles of the gateway's neighbours: graveler over dicts, auth with two users.

They answer through the real transport and the real clients. Graveler's own tests cover its promises; this
double only returns answers of the right form.
"""
# ruff: noqa: N802 - rpc names come from the proto

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.clock import ManualClock, SeededIds
from tests.support.layered_pages import merge_page

from tarn.core.condition import WriteCondition
from tarn.core.entry import is_tombstone, operation_of, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_path
from tarn.core.listing.pages import Page, PageRequest
from tarn.core.part_list import check_parts
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation
from tarn.rpc.wire.methods import Endpoint
from tarn_proto.auth.v1 import authorization_service_pb2 as auth_pb
from tarn_proto.auth.v1 import caller_pb2
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import bucket_service_pb2 as bucket_pb
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import entry_service_pb2 as entry_pb
from tarn_proto.graveler.v1 import repository_service_pb2 as repository_pb
from tarn_proto.graveler.v1 import tag_service_pb2 as tag_pb
from tarn_proto.graveler.v1 import upload_service_pb2 as upload_pb

SECRETS = {
    "AKIAADMIN": "admin-secret",
    "AKIAREADER": "reader-secret",
    "AKIAWRITER": "writer-secret",
    "AKIAPARTIAL": "partial-secret",
}
ALLOWED = {
    "AKIAADMIN": ("*",),
    "AKIAREADER": ("ReadRepo", "ListRepos"),
    "AKIAWRITER": ("WriteRepo",),
    "AKIAPARTIAL": ("WriteRepo",),
}
PUBLIC = {"lookup", "ListEntries", "GetRepository", "FindErased"}
RESOURCES = {"AKIAPARTIAL": ("repository/lake/branch/dev/*",)}


def error_of(kind: Kind, reason: Reason, text: str = "as told", **metadata: str) -> TarnError:
    return TarnError(kind, reason, text, **metadata)


@dataclass
class Repo:
    """A repository of the double: refs are dicts of path → packed entry; `parents` of the commits of refs."""

    instance_uid: str
    namespace: str
    branches: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, dict[str, bytes]] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Upload:
    record: upload_pb.Upload
    repository_id: str
    parts: dict[int, upload_pb.UploadPart] = field(default_factory=dict)
    state: str = "open"
    claim: bytes = b""
    manifest: bytes = b""
    answer: bytes = b""


def _judge(
    message: entry_pb.WriteCondition, path: str, branch: dict[str, bytes], entry: bytes
) -> bool:
    """Whether a write repeats an earlier one; raises if its condition does not hold."""
    condition = WriteCondition(
        message.if_none_match,
        message.if_match,
        message.size_bytes if message.HasField("size_bytes") else None,
        message.mtime_seconds if message.HasField("mtime_seconds") else None,
    )
    if not condition:
        return False
    assert operation_of(entry), "a conditional write names its operation"
    there = branch.get(path)
    if there is not None and operation_of(there) == operation_of(entry):
        return True
    condition.check(path, there)
    return False


class FakeGraveler:
    """All services of graveler that the gateway uses, over dicts. `fail[name]` makes calls fail."""

    def __init__(self, clock: ManualClock, ids: SeededIds) -> None:
        self._clock, self._ids = clock, ids
        self.repos: dict[str, Repo] = {}
        self.views: dict[str, bucket_pb.BucketView] = {}
        self.cors: dict[str, str] = {}
        self.cors_asked: list[str] = []
        self.views_asked: list[str] = []
        self._generation = 0
        self.uploads: dict[str, Upload] = {}
        self.fail: dict[str, list[Exception | None]] = {}
        """Before an rpc does anything."""
        self.lose: dict[str, list[TarnError]] = {}
        """After it is done: its answer is lost."""
        self.calls: list[str] = []
        self.entered: Callable[[str], None] | None = None
        """Called with the name of each rpc that begins."""
        self.staged: list[entry_pb.Stage] = []
        self.deleted: dict[str, bytes] = {}
        """Tombstones of conditional deletes, by path."""
        self.staged_by: list[str] = []
        """The proofs of gateways, in the order of `staged`."""
        self.is_old_version = False
        self.page_max = 1000
        self.erased: dict[bytes, str] = {}

    def _enter(self, name: str, call: Call) -> None:
        self.calls.append(name)
        if self.entered is not None:
            self.entered(name)
        is_anonymous = call.caller_token == "t1.gateway"
        if not is_anonymous:
            assert call.caller_token.startswith("token-of-"), "calls carry the caller's token"
        queue = self.fail.get(name)
        if queue and (error := queue.pop(0)) is not None:
            raise error
        if call.bucket:
            bucket_id, _, etag = call.bucket.partition(":")
            if (view := self.views.get(bucket_id)) is None:
                raise error_of(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND, bucket=bucket_id)
            if is_anonymous and not (view.public_read and name in PUBLIC):
                raise error_of(Kind.DENIED, Reason.ACCESS_DENIED, "shows lake/main")
            if view.etag != etag:
                raise error_of(Kind.CONFLICT, Reason.BUCKET_MOVED, bucket=bucket_id)
        elif is_anonymous:
            raise error_of(Kind.DENIED, Reason.ACCESS_DENIED)

    def point(
        self, bucket_id: str, repository_id: str, ref: str, *, public_read: bool = False
    ) -> None:
        """Makes a view, or points it elsewhere."""
        self._generation += 1
        etag = f"{0:032x}:{self._generation}"
        self.views[bucket_id] = bucket_pb.BucketView(
            bucket_id=bucket_id,
            repository_id=repository_id,
            ref=ref,
            etag=etag,
            public_read=public_read,
        )

    def _repo(self, repository_id: str) -> Repo:
        repo = self.repos.get(repository_id)
        if repo is None:
            raise error_of(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND)
        return repo

    def _branch(self, repository_id: str, name: str) -> dict[str, bytes]:
        repo = self._repo(repository_id)
        if name in repo.branches:
            return repo.branches[name]
        if name in repo.tags:
            raise error_of(Kind.INVALID, Reason.REF_NOT_WRITABLE, f"{name} is a tag")
        raise error_of(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, f"no branch {name}")

    def _ref(self, repository_id: str, ref: str) -> dict[str, bytes]:
        repo = self._repo(repository_id)
        name = ref.partition("~")[0].partition("@")[0]
        found = repo.branches.get(name, repo.tags.get(name))
        if found is None:
            raise error_of(Kind.NOT_FOUND, Reason.REF_NOT_FOUND, f"no ref {ref}")
        return found

    # EntryService

    async def lookup(self, request: entry_pb.Lookup, call: Call) -> entry_pb.LookupResult:
        self._enter("lookup", call)
        packed = self._ref(request.repository_id, request.ref).get(parse_path(request.path))
        if packed is None:
            raise error_of(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND)
        return entry_pb.LookupResult(
            entry=packed,
            storage_namespace=self._repo(request.repository_id).namespace,
            may_be_shared=request.is_copy_source and not self.is_old_version,
        )

    async def stage(self, request: entry_pb.Stage, call: Call) -> entry_pb.StageResult:
        self._enter("stage", call)
        if self._repo(request.repository_id).instance_uid != request.instance_uid:
            raise error_of(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND)
        branch = self._branch(request.repository_id, request.branch_id)
        self.staged.append(request)
        self.staged_by.append(call.service_token)
        rows = branch
        if is_tombstone(request.entry) and request.path not in branch:
            rows = self.deleted
        is_repeat = _judge(request.condition, request.path, rows, request.entry)
        if not is_repeat and is_tombstone(request.entry):
            branch.pop(request.path, None)
            self.deleted[request.path] = request.entry
        elif not is_repeat:
            parts = request.parts
            branch[request.path] = check_parts(request.entry, parts) if parts else request.entry
        return entry_pb.StageResult(is_repeat=is_repeat)

    async def unstage(self, request: entry_pb.Unstage, call: Call) -> entry_pb.UnstageResult:
        self._enter("unstage", call)
        self._branch(request.repository_id, request.branch_id).pop(request.path, None)
        return entry_pb.UnstageResult()

    async def ListEntries(
        self, request: entry_pb.ListEntriesRequest, call: Call
    ) -> entry_pb.ListEntriesResponse:
        self._enter("ListEntries", call)
        rows = sorted(self._ref(request.repository_id, request.ref).items())
        after = request.page_token or request.after
        size = min(request.page_size or 1000, self.page_max)
        wanted = PageRequest(request.prefix, request.delimiter, after, size)
        page = _page(wanted, rows)
        return entry_pb.ListEntriesResponse(
            paths=page.paths,
            packed_entries=page.entries,
            next_page_token=page.next_after or "",
            storage_namespace=self._repo(request.repository_id).namespace,
        )

    async def UnstageEntries(
        self, request: entry_pb.UnstageEntriesRequest, call: Call
    ) -> entry_pb.UnstageEntriesResponse:
        self._enter("UnstageEntries", call)
        branch = self._branch(request.repository_id, request.branch_id)
        outcomes = []
        for path in request.paths:
            if path == "stubborn":
                busy = error_to_operation(error_of(Kind.EXHAUSTED, Reason.OVERLOADED))
                outcomes.append(entry_pb.UnstageOutcome(error=busy))
                continue
            branch.pop(path, None)
            outcomes.append(entry_pb.UnstageOutcome())
        return entry_pb.UnstageEntriesResponse(outcomes=outcomes)

    async def FindErased(
        self, request: entry_pb.FindErasedRequest, call: Call
    ) -> entry_pb.FindErasedResponse:
        self._enter("FindErased", call)
        assert parse_path(request.path) in self._ref(request.repository_id, request.ref)
        return entry_pb.FindErasedResponse(plan_id=self.erased.get(request.address, ""))

    # RepositoryService, BranchService, TagService

    async def GetRepository(
        self, request: repository_pb.GetRepositoryRequest, call: Call
    ) -> repository_pb.GetRepositoryResponse:
        self._enter("GetRepository", call)
        found = self._message(request.repository_id)
        return repository_pb.GetRepositoryResponse(repository=found)

    def _message(self, repository_id: str) -> repository_pb.Repository:
        repo = self._repo(repository_id)
        message = repository_pb.Repository(
            repository_id=repository_id,
            instance_uid=repo.instance_uid,
            storage_namespace=repo.namespace,
            default_branch_id="main",
        )
        message.create_time.FromMicroseconds(self._clock.now_us())
        return message

    async def GetBucketView(
        self, request: bucket_pb.GetBucketViewRequest, call: Call
    ) -> bucket_pb.GetBucketViewResponse:
        """It is not noted as a call: it comes before all others of a request whose bucket is not cached."""
        assert call.service_token == "t1.gateway"
        self.views_asked.append(request.bucket_id)
        if (view := self.views.get(request.bucket_id)) is None:
            raise error_of(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND)
        return bucket_pb.GetBucketViewResponse(view=view)

    async def GetBucketCors(
        self, request: bucket_pb.GetBucketCorsRequest, call: Call
    ) -> bucket_pb.GetBucketCorsResponse:
        """The gateway asks by itself, or for a user."""
        name = request.bucket_id
        if call.caller_token == "t1.gateway":
            self.cors_asked.append(name)
            queue = self.fail.get("GetBucketCors")
            if queue and (error := queue.pop(0)) is not None:
                raise error
        else:
            self._enter("GetBucketCors", call)
        if name not in self.views and name not in self.repos:
            raise error_of(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND)
        return bucket_pb.GetBucketCorsResponse(
            rules_json=self.cors.get(name, ""), is_view=name in self.views
        )

    async def SetBucketViewCors(
        self, request: bucket_pb.SetBucketViewCorsRequest, call: Call
    ) -> bucket_pb.SetBucketViewCorsResponse:
        self._enter("SetBucketViewCors", call)
        if request.bucket_id not in self.views:
            raise error_of(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND)
        self.cors[request.bucket_id] = request.rules_json
        return bucket_pb.SetBucketViewCorsResponse()

    async def SetRepositoryCors(
        self, request: bucket_pb.SetRepositoryCorsRequest, call: Call
    ) -> bucket_pb.SetRepositoryCorsResponse:
        self._enter("SetRepositoryCors", call)
        self._repo(request.repository_id)
        self.cors[request.repository_id] = request.rules_json
        return bucket_pb.SetRepositoryCorsResponse()

    async def CreateRepository(
        self, request: repository_pb.CreateRepositoryRequest, call: Call
    ) -> repository_pb.CreateRepositoryResponse:
        self._enter("CreateRepository", call)
        name = request.repository_id
        if name in self.repos or name in self.views:
            raise error_of(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS)
        self.repos[name] = Repo(f"uid-of-{name}", f"mem://{name}", {"main": {}})
        return repository_pb.CreateRepositoryResponse(repository=self._message(name))

    async def CreateBucketView(
        self, request: bucket_pb.CreateBucketViewRequest, call: Call
    ) -> bucket_pb.CreateBucketViewResponse:
        self._enter("CreateBucketView", call)
        name = request.bucket_id
        if name in self.repos or name in self.views:
            raise error_of(Kind.ALREADY_EXISTS, Reason.BUCKET_EXISTS)
        self._ref(request.repository_id, request.ref)
        self.point(name, request.repository_id, request.ref)
        return bucket_pb.CreateBucketViewResponse(view=self.views[name])

    async def DeleteBucketView(
        self, request: bucket_pb.DeleteBucketViewRequest, call: Call
    ) -> bucket_pb.DeleteBucketViewResponse:
        self._enter("DeleteBucketView", call)
        if (view := self.views.get(request.bucket_id)) is None:
            raise error_of(Kind.NOT_FOUND, Reason.BUCKET_NOT_FOUND)
        if request.etag not in ("", view.etag):
            raise error_of(Kind.CONFLICT, Reason.BUCKET_MOVED)
        del self.views[request.bucket_id]
        return bucket_pb.DeleteBucketViewResponse()

    async def GetCommit(
        self, request: commit_pb.GetCommitRequest, call: Call
    ) -> commit_pb.GetCommitResponse:
        self._enter("GetCommit", call)
        self._ref(request.repository_id, request.ref)
        parents = self._repo(request.repository_id).parents.get(request.ref, ())
        return commit_pb.GetCommitResponse(commit=commit_pb.Commit(parent_ids=parents))

    async def ListRepositories(
        self, request: repository_pb.ListRepositoriesRequest, call: Call
    ) -> repository_pb.ListRepositoriesResponse:
        """It is asked in the place of a replica that does not know ListBuckets."""
        self._enter("ListRepositories", call)
        names = [name for name in sorted(self.repos) if name.startswith(request.prefix)]
        return repository_pb.ListRepositoriesResponse(
            repositories=[self._message(name) for name in names]
        )

    async def ListBuckets(
        self, request: bucket_pb.ListBucketsRequest, call: Call
    ) -> bucket_pb.ListBucketsResponse:
        self._enter("ListBuckets", call)
        names = sorted({*self.repos, *self.views})
        names = [name for name in names if name.startswith(request.prefix)]
        names = [name for name in names if name > request.page_token]
        shown = names[: request.page_size]
        return bucket_pb.ListBucketsResponse(
            buckets=[
                bucket_pb.Bucket(bucket_id=name, view=self.views[name])
                if name in self.views
                else bucket_pb.Bucket(bucket_id=name, create_time=self._message(name).create_time)
                for name in shown
            ],
            next_page_token=shown[-1] if len(shown) < len(names) else "",
        )

    async def GetBranch(
        self, request: branch_pb.GetBranchRequest, call: Call
    ) -> branch_pb.GetBranchResponse:
        self._enter("GetBranch", call)
        if request.branch_id not in self._repo(request.repository_id).branches:
            raise error_of(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND)
        return branch_pb.GetBranchResponse(branch=branch_pb.Branch(branch_id=request.branch_id))

    async def ListBranches(
        self, request: branch_pb.ListBranchesRequest, call: Call
    ) -> branch_pb.ListBranchesResponse:
        self._enter("ListBranches", call)
        names, token = self._names(self._repo(request.repository_id).branches, request)
        branches = [branch_pb.Branch(branch_id=name) for name in names]
        return branch_pb.ListBranchesResponse(branches=branches, next_page_token=token)

    def _names(self, refs: Iterable[str], request: Any) -> tuple[list[str], str]:
        names = sorted(name for name in refs if name.startswith(request.prefix))
        names = [name for name in names if name > request.page_token]
        shown = names[: min(request.page_size, self.page_max)]
        return shown, shown[-1] if len(shown) < len(names) else ""

    async def GetTag(self, request: tag_pb.GetTagRequest, call: Call) -> tag_pb.GetTagResponse:
        self._enter("GetTag", call)
        if request.tag_id not in self._repo(request.repository_id).tags:
            raise error_of(Kind.NOT_FOUND, Reason.TAG_NOT_FOUND)
        return tag_pb.GetTagResponse(tag=tag_pb.Tag(tag_id=request.tag_id))

    async def ListTags(
        self, request: tag_pb.ListTagsRequest, call: Call
    ) -> tag_pb.ListTagsResponse:
        self._enter("ListTags", call)
        names, token = self._names(self._repo(request.repository_id).tags, request)
        tags = [tag_pb.Tag(tag_id=name) for name in names]
        return tag_pb.ListTagsResponse(tags=tags, next_page_token=token)

    # UploadService

    def _upload(self, request: Any) -> Upload:
        upload = self.uploads.get(request.upload_id)
        if upload is None or upload.state == "aborted":
            raise error_of(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
        return upload

    async def CreateUpload(
        self, request: upload_pb.CreateUploadRequest, call: Call
    ) -> upload_pb.CreateUploadResponse:
        self._enter("CreateUpload", call)
        self._branch(request.repository_id, request.branch_id)
        unpack(request.template)
        record = upload_pb.Upload(
            upload_id=self._ids.uuid7().hex(),
            branch_id=request.branch_id,
            path=request.path,
            address=self._ids.uuid7(),
            template=request.template,
            user_id="ada",
            checksum_algorithm=request.checksum_algorithm,
            is_full_object_checksum=request.is_full_object_checksum,
            storage_namespace=self._repo(request.repository_id).namespace,
        )
        self.uploads[record.upload_id] = Upload(record, request.repository_id)
        return upload_pb.CreateUploadResponse(upload=record)

    async def GetUpload(
        self, request: upload_pb.GetUploadRequest, call: Call
    ) -> upload_pb.GetUploadResponse:
        self._enter("GetUpload", call)
        record = self._upload(request).record
        if (record.branch_id, record.path) != (request.branch_id, request.path):
            raise error_of(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
        return upload_pb.GetUploadResponse(upload=record)

    async def RecordUploadPart(
        self, request: upload_pb.RecordUploadPartRequest, call: Call
    ) -> upload_pb.RecordUploadPartResponse:
        self._enter("RecordUploadPart", call)
        upload = self._upload(request)
        if upload.state == "completed":
            raise error_of(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
        upload.parts[request.part.part_number] = request.part
        return upload_pb.RecordUploadPartResponse()

    async def ListUploadParts(
        self, request: upload_pb.ListUploadPartsRequest, call: Call
    ) -> upload_pb.ListUploadPartsResponse:
        self._enter("ListUploadParts", call)
        parts = sorted(self._upload(request).parts.items())
        parts = [each for each in parts if each[0] > request.after_part_number]
        shown = [part for _, part in parts[: request.page_size]]
        truncated = len(shown) < len(parts)
        return upload_pb.ListUploadPartsResponse(parts=shown, is_truncated=truncated)

    async def ListUploads(
        self, request: upload_pb.ListUploadsRequest, call: Call
    ) -> upload_pb.ListUploadsResponse:
        self._enter("ListUploads", call)
        after = (request.after_path, request.after_upload_id or "\x7f")
        found = sorted(
            (upload.record.path, upload.record.upload_id)
            for upload in self.uploads.values()
            if upload.state in ("open", "completing")
            and upload.repository_id == request.repository_id
            and upload.record.branch_id == request.branch_id
            and upload.record.path.startswith(request.prefix)
        )
        found = [each for each in found if not request.after_path or each > after]
        shown = found[: min(request.page_size, self.page_max)]
        return upload_pb.ListUploadsResponse(
            uploads=[self.uploads[upload_id].record for _, upload_id in shown],
            is_truncated=len(shown) < len(found),
        )

    async def BeginCompleteUpload(
        self, request: upload_pb.BeginCompleteUploadRequest, call: Call
    ) -> upload_pb.BeginCompleteUploadResponse:
        self._enter("BeginCompleteUpload", call)
        upload = self._upload(request)
        if upload.state == "completed":
            if upload.manifest != request.manifest_hash:
                raise error_of(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
            return upload_pb.BeginCompleteUploadResponse(completed_entry=upload.answer)
        if upload.state == "completing" and upload.claim not in (b"", request.claim):
            raise error_of(Kind.UNAVAILABLE, Reason.UPLOAD_BUSY)
        upload.state, upload.claim = "completing", request.claim
        upload.manifest = request.manifest_hash
        if lost := self.lose.get("BeginCompleteUpload"):
            raise lost.pop(0)
        return upload_pb.BeginCompleteUploadResponse(claim=upload.claim)

    async def FinishCompleteUpload(
        self, request: upload_pb.FinishCompleteUploadRequest, call: Call
    ) -> upload_pb.FinishCompleteUploadResponse:
        self._enter("FinishCompleteUpload", call)
        upload = self._upload(request)
        assert (upload.state, upload.claim) == ("completing", request.claim)
        record = upload.record
        branch = self._branch(upload.repository_id, record.branch_id)
        entry = request.entry
        if request.parts:
            entry = check_parts(entry, request.parts)
        if not _judge(request.condition, record.path, branch, entry):
            branch[record.path] = entry
        upload.state, upload.answer, upload.parts = "completed", entry, {}
        return upload_pb.FinishCompleteUploadResponse()

    async def ReopenUpload(
        self, request: upload_pb.ReopenUploadRequest, call: Call
    ) -> upload_pb.ReopenUploadResponse:
        self._enter("ReopenUpload", call)
        upload = self._upload(request)
        assert (upload.state, upload.claim) == ("completing", request.claim)
        if request.may_be_staged:
            upload.claim = b""
        else:
            upload.state = "open"
        return upload_pb.ReopenUploadResponse()

    async def AbortUpload(
        self, request: upload_pb.AbortUploadRequest, call: Call
    ) -> upload_pb.AbortUploadResponse:
        self._enter("AbortUpload", call)
        upload = self._upload(request)
        if upload.state == "completed":
            raise error_of(Kind.NOT_FOUND, Reason.UPLOAD_NOT_FOUND)
        upload.state = "aborted"
        return upload_pb.AbortUploadResponse()

    async def _never(self, request: Any, call: Call) -> Any:
        raise AssertionError("the gateway never asks this")

    PointBucketView = SetBucketViewPublicRead = DeleteRepository = _never
    CreateBranch = DeleteBranch = ResetBranch = MoveBranch = _never
    CreateCommit = ListCommits = AnnotatePaths = DiffRefs = DiffUncommitted = MeasureRef = _never
    CreateTag = DeleteTag = SetBranchExpiry = _never


class FakeAuth:
    """AuthorizationService for the keys of `SECRETS`, and for the gateway as a service."""

    async def authorize_service(
        self, request: auth_pb.AuthorizeService, call: Call
    ) -> auth_pb.AuthorizeServiceResult:
        name = request.service
        grant = caller_pb2.Grant(user_id=name, caller_token=f"t1.{name}", ttl_ms=60_000)
        return auth_pb.AuthorizeServiceResult(grant=grant)

    async def authorize_token(
        self, request: auth_pb.AuthorizeToken, call: Call
    ) -> auth_pb.AuthorizeTokenResult:
        raise AssertionError("the gateway never asks this")

    async def authorize_key(
        self, request: auth_pb.AuthorizeKey, call: Call
    ) -> auth_pb.AuthorizeKeyResult:
        secret = self._secret(request)
        key = f"AWS4{secret}".encode()
        for part in (request.date, request.region, request.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        grant = self._grant(request.access_key_id)
        return auth_pb.AuthorizeKeyResult(signing_key=key, grant=grant)

    async def authorize_signature_v2(
        self, request: auth_pb.AuthorizeSignatureV2, call: Call
    ) -> auth_pb.AuthorizeSignatureV2Result:
        made = hmac.digest(self._secret(request).encode(), request.string_to_sign, "sha1")
        if made != request.signature:
            raise error_of(Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH)
        return auth_pb.AuthorizeSignatureV2Result(grant=self._grant(request.access_key_id))

    async def begin_web_session(
        self, request: auth_pb.BeginWebSession, call: Call
    ) -> auth_pb.BeginWebSessionResult:
        raise NotImplementedError  # no gateway asks

    async def authorize_web_session(
        self, request: auth_pb.AuthorizeWebSession, call: Call
    ) -> auth_pb.AuthorizeWebSessionResult:
        raise NotImplementedError

    async def end_web_session(
        self, request: auth_pb.EndWebSession, call: Call
    ) -> auth_pb.EndWebSessionResult:
        raise NotImplementedError

    async def sign_download(
        self, request: auth_pb.SignDownload, call: Call
    ) -> auth_pb.SignDownloadResult:
        raise NotImplementedError

    @staticmethod
    def _secret(request: auth_pb.AuthorizeKey | auth_pb.AuthorizeSignatureV2) -> str:
        if request.session_token_digest:
            raise error_of(Kind.UNAUTHENTICATED, Reason.SESSION_TOKEN_INVALID)
        secret = SECRETS.get(request.access_key_id)
        if secret is None:
            raise error_of(Kind.UNAUTHENTICATED, Reason.CREDENTIAL_NOT_FOUND)
        return secret

    @staticmethod
    def _grant(access_key_id: str) -> caller_pb2.Grant:
        return caller_pb2.Grant(
            user_id=access_key_id.lower(),
            statements=[
                caller_pb2.Statement(
                    allow=True,
                    actions=ALLOWED[access_key_id],
                    resources=RESOURCES.get(access_key_id, ("*",)),
                )
            ],
            caller_token=f"token-of-{access_key_id}",
            ttl_ms=60_000,
        )


def _page(wanted: PageRequest, rows: Sequence[tuple[str, bytes]]) -> Page:
    merge = merge_page(wanted, 1, with_base=False)
    try:
        need = next(merge)
        while True:
            found = [row for row in rows if row[0] >= need.start]
            need = merge.send(([path for path, _ in found], [packed for _, packed in found]))
    except StopIteration as end:
        page: Page = end.value
        return page


def endpoints(graveler: FakeGraveler) -> list[Endpoint]:
    """Both doubles behind their services."""
    services = {
        entry_pb: "EntryService",
        repository_pb: "RepositoryService",
        bucket_pb: "BucketService",
        branch_pb: "BranchService",
        commit_pb: "CommitService",
        tag_pb: "TagService",
        upload_pb: "UploadService",
    }
    authorization = auth_pb.DESCRIPTOR.services_by_name["AuthorizationService"]
    return [
        *(
            Endpoint(module.DESCRIPTOR.services_by_name[name], graveler)
            for module, name in services.items()
        ),
        Endpoint(authorization, FakeAuth()),
    ]
