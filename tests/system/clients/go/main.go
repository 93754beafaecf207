// Roundtrip does what clients do with objects, by the AWS SDK for Go 2: `roundtrip ENDPOINT BUCKET ROOT`. The key comes
// from the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

type lake struct {
	*s3.Client
	bucket string
}

func open(endpoint, bucket string) lake {
	key := aws.Credentials{
		AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
	}
	return lake{s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "us-east-1",
		UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return key, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}), bucket}
}

// read returns an object, or a range of it.
func (l lake) read(ctx context.Context, key string, span *string) ([]byte, error) {
	got, err := l.GetObject(ctx, &s3.GetObjectInput{Bucket: &l.bucket, Key: &key, Range: span})
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	return io.ReadAll(got.Body)
}

// upload sends bodies as the parts of an object.
func (l lake) upload(ctx context.Context, key string, bodies ...[]byte) error {
	begun, err := l.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &l.bucket, Key: &key})
	if err != nil {
		return err
	}
	var parts []types.CompletedPart
	for i, body := range bodies {
		number := aws.Int32(int32(i + 1))
		sent, err := l.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &l.bucket, Key: &key, UploadId: begun.UploadId, PartNumber: number, Body: bytes.NewReader(body),
		})
		if err != nil {
			return err
		}
		parts = append(parts, types.CompletedPart{
			PartNumber: number, ETag: sent.ETag, ChecksumCRC32: sent.ChecksumCRC32,
		})
	}
	_, err = l.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &l.bucket, Key: &key, UploadId: begun.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	return err
}

// list returns the keys with a prefix, by pages of two.
func (l lake) list(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	pages := s3.NewListObjectsV2Paginator(l.Client, &s3.ListObjectsV2Input{
		Bucket: &l.bucket, Prefix: &prefix, MaxKeys: aws.Int32(2),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, each := range page.Contents {
			keys = append(keys, *each.Key)
		}
	}
	return keys, nil
}

// presigned reads an object by a URL that needs no key.
func (l lake) presigned(ctx context.Context, key string) ([]byte, error) {
	get := &s3.GetObjectInput{Bucket: &l.bucket, Key: &key}
	signed, err := s3.NewPresignClient(l.Client).PresignGetObject(ctx, get, s3.WithPresignExpires(time.Minute))
	if err != nil {
		return nil, err
	}
	answer, err := http.Get(signed.URL)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

func (l lake) roundTrip(ctx context.Context, root string) error {
	small, copied, large := root+"a b/ü", root+"copy", root+"large"
	body, first := []byte("hello, lake\n"), bytes.Repeat([]byte("x"), 5<<20)
	if _, err := l.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &l.bucket, Key: &small, Body: bytes.NewReader(body), Metadata: map[string]string{"job": "nightly"},
	}); err != nil {
		return err
	}
	// The source is escaped by the caller.
	source := l.bucket + "/" + root + "a%20b/%C3%BC"
	if _, err := l.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &l.bucket, Key: &copied, CopySource: &source}); err != nil {
		return err
	}
	head, err := l.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &l.bucket, Key: &copied})
	if err != nil {
		return err
	}
	if head.Metadata["job"] != "nightly" || *head.ContentLength != int64(len(body)) {
		return fmt.Errorf("the copy has the metadata %v and %d bytes", head.Metadata, *head.ContentLength)
	}
	if err := l.upload(ctx, large, first, body); err != nil {
		return err
	}
	wanted := []string{small, copied, large}
	keys, err := l.list(ctx, root)
	if err != nil {
		return err
	}
	if !slices.Equal(keys, wanted) {
		return fmt.Errorf("listed %q", keys)
	}
	for _, each := range []struct {
		key, span string
		want      []byte
	}{
		{large, fmt.Sprintf("bytes=%d-%d", len(first)-1, len(first)+4), []byte("xhello")},
		{large, fmt.Sprintf("bytes=0-%d", len(first)+len(body)-1), append(slices.Clone(first), body...)},
		{small, "bytes=-5", []byte("lake\n")},
	} {
		got, err := l.read(ctx, each.key, &each.span)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, each.want) {
			return fmt.Errorf("%s of %s are other bytes", each.span, each.key)
		}
	}
	if got, err := l.presigned(ctx, copied); err != nil || !bytes.Equal(got, body) {
		return fmt.Errorf("presigned: %q, %v", got, err)
	}
	objects := make([]types.ObjectIdentifier, len(wanted))
	for i := range wanted {
		objects[i].Key = &wanted[i]
	}
	gone, err := l.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &l.bucket, Delete: &types.Delete{Objects: objects},
	})
	if err != nil {
		return err
	}
	if len(gone.Deleted) != len(wanted) {
		return fmt.Errorf("not deleted: %v", gone.Errors)
	}
	_, err = l.read(ctx, small, nil)
	var missing *types.NoSuchKey
	if !errors.As(err, &missing) {
		return fmt.Errorf("a deleted object: %v", err)
	}
	return nil
}

func main() {
	log.SetFlags(0)
	if err := open(os.Args[1], os.Args[2]).roundTrip(context.Background(), os.Args[3]); err != nil {
		log.Fatal(err)
	}
}
