"""Operations of S3 that Tarn does not offer. Each is refused by name, with 501 NotImplemented.

The list is complete, so that such an operation is never mistaken for an offered one: `PUT ?acl` is not
PutObject. ListDirectoryBuckets and WriteGetObjectResponse are omitted: S3 Express and Object Lambda have
separate addresses for them.
"""

from __future__ import annotations

from typing import Final

from tarn_gateway.operation import Addressed, NotOffered

__all__ = ["NOT_OFFERED"]

_BUCKET, _KEY = Addressed.BUCKET, Addressed.KEY

# fmt: off
NOT_OFFERED: Final = (
    NotOffered("GetBucketAbac", "GET", "abac", _BUCKET),
    NotOffered("PutBucketAbac", "PUT", "abac", _BUCKET),
    NotOffered("PutBucketAccelerateConfiguration", "PUT", "accelerate", _BUCKET),
    NotOffered("DeleteBucketAnalyticsConfiguration", "DELETE", "analytics", _BUCKET),
    NotOffered("GetBucketAnalyticsConfiguration", "GET", "analytics", _BUCKET,
               others=("ListBucketAnalyticsConfigurations",)),
    NotOffered("PutBucketAnalyticsConfiguration", "PUT", "analytics", _BUCKET),
    NotOffered("DeleteBucketEncryption", "DELETE", "encryption", _BUCKET),
    NotOffered("PutBucketEncryption", "PUT", "encryption", _BUCKET),
    NotOffered("DeleteBucketIntelligentTieringConfiguration", "DELETE", "intelligent-tiering", _BUCKET),
    NotOffered("GetBucketIntelligentTieringConfiguration", "GET", "intelligent-tiering", _BUCKET,
               others=("ListBucketIntelligentTieringConfigurations",)),
    NotOffered("PutBucketIntelligentTieringConfiguration", "PUT", "intelligent-tiering", _BUCKET),
    NotOffered("DeleteBucketInventoryConfiguration", "DELETE", "inventory", _BUCKET),
    NotOffered("GetBucketInventoryConfiguration", "GET", "inventory", _BUCKET,
               others=("ListBucketInventoryConfigurations",)),
    NotOffered("PutBucketInventoryConfiguration", "PUT", "inventory", _BUCKET),
    NotOffered("DeleteBucketLifecycle", "DELETE", "lifecycle", _BUCKET),
    NotOffered("PutBucketLifecycleConfiguration", "PUT", "lifecycle", _BUCKET, others=("PutBucketLifecycle",)),
    NotOffered("PutBucketLogging", "PUT", "logging", _BUCKET),
    NotOffered("UpdateBucketMetadataAnnotationTableConfiguration", "PUT", "metadataAnnotationTable", _BUCKET),
    NotOffered("DeleteBucketMetadataConfiguration", "DELETE", "metadataConfiguration", _BUCKET),
    NotOffered("GetBucketMetadataConfiguration", "GET", "metadataConfiguration", _BUCKET),
    NotOffered("CreateBucketMetadataConfiguration", "POST", "metadataConfiguration", _BUCKET),
    NotOffered("UpdateBucketMetadataInventoryTableConfiguration", "PUT", "metadataInventoryTable", _BUCKET),
    NotOffered("UpdateBucketMetadataJournalTableConfiguration", "PUT", "metadataJournalTable", _BUCKET),
    NotOffered("DeleteBucketMetadataTableConfiguration", "DELETE", "metadataTable", _BUCKET),
    NotOffered("GetBucketMetadataTableConfiguration", "GET", "metadataTable", _BUCKET),
    NotOffered("CreateBucketMetadataTableConfiguration", "POST", "metadataTable", _BUCKET),
    NotOffered("DeleteBucketMetricsConfiguration", "DELETE", "metrics", _BUCKET),
    NotOffered("GetBucketMetricsConfiguration", "GET", "metrics", _BUCKET, others=("ListBucketMetricsConfigurations",)),
    NotOffered("PutBucketMetricsConfiguration", "PUT", "metrics", _BUCKET),
    NotOffered("PutBucketNotificationConfiguration", "PUT", "notification", _BUCKET, others=("PutBucketNotification",)),
    NotOffered("PutObjectLockConfiguration", "PUT", "object-lock", _BUCKET),
    NotOffered("DeleteBucketOwnershipControls", "DELETE", "ownershipControls", _BUCKET),
    NotOffered("DeleteBucketPolicy", "DELETE", "policy", _BUCKET),
    NotOffered("PutBucketPolicy", "PUT", "policy", _BUCKET),
    NotOffered("DeletePublicAccessBlock", "DELETE", "publicAccessBlock", _BUCKET),
    NotOffered("DeleteBucketReplication", "DELETE", "replication", _BUCKET),
    NotOffered("PutBucketReplication", "PUT", "replication", _BUCKET),
    NotOffered("PutBucketRequestPayment", "PUT", "requestPayment", _BUCKET),
    NotOffered("CreateSession", "GET", "session", _BUCKET),
    NotOffered("DeleteBucketTagging", "DELETE", "tagging", _BUCKET),
    NotOffered("PutBucketTagging", "PUT", "tagging", _BUCKET),
    NotOffered("PutBucketVersioning", "PUT", "versioning", _BUCKET,
               "Buckets are not versioned: a repository keeps versions as commits."),
    NotOffered("DeleteBucketWebsite", "DELETE", "website", _BUCKET),
    NotOffered("PutBucketWebsite", "PUT", "website", _BUCKET),

    NotOffered("DeleteObjectAnnotation", "DELETE", "annotation", _KEY),
    NotOffered("GetObjectAnnotation", "GET", "annotation", _KEY, others=("ListObjectAnnotations",)),
    NotOffered("PutObjectAnnotation", "PUT", "annotation", _KEY),
    NotOffered("UpdateObjectEncryption", "PUT", "encryption", _KEY),
    NotOffered("GetObjectLegalHold", "GET", "legal-hold", _KEY),
    NotOffered("PutObjectLegalHold", "PUT", "legal-hold", _KEY),
    NotOffered("RenameObject", "PUT", "renameObject", _KEY),
    NotOffered("RestoreObject", "POST", "restore", _KEY),
    NotOffered("GetObjectRetention", "GET", "retention", _KEY),
    NotOffered("PutObjectRetention", "PUT", "retention", _KEY),
    NotOffered("SelectObjectContent", "POST", "select", _KEY),
    NotOffered("GetObjectTorrent", "GET", "torrent", _KEY),

    NotOffered("AppendObject", "POST", "append", _KEY),  # of other servers
)
# fmt: on
