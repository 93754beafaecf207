// Cleanup removes the objects below a prefix: on a branch of its own, which it commits and merges into main.
//
//	TARN_SERVER=127.0.0.1:8102 TARN_ACCESS_KEY_ID=… TARN_SECRET_ACCESS_KEY=… go run . REPOSITORY PREFIX
//
// TARN_AUTH_SERVER is the address of auth, if it is a process of its own.
package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	auth "cleanup/gen/tarn_proto/auth/v1"
	graveler "cleanup/gen/tarn_proto/graveler/v1"
)

// connect keeps a quiet connection alive, and repeats calls that change nothing.
func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS: credentials.NewTLS(&tls.Config{…})
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithDefaultServiceConfig(serviceConfig(
			graveler.File_tarn_proto_graveler_v1_branch_service_proto,
			graveler.File_tarn_proto_graveler_v1_commit_service_proto,
			graveler.File_tarn_proto_graveler_v1_entry_service_proto,
		)))
}

// serviceConfig allows repetitions for the methods that the protos mark as changing nothing, and for no others: gRPC
// reports UNAVAILABLE, too, when a connection breaks under a call that a server may have carried out.
func serviceConfig(files ...protoreflect.FileDescriptor) string {
	var names []map[string]string
	for _, file := range files {
		for s := range file.Services().Len() {
			service := file.Services().Get(s)
			for m := range service.Methods().Len() {
				method := service.Methods().Get(m)
				options := method.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
					names = append(names, map[string]string{
						"service": string(service.FullName()), "method": string(method.Name())})
				}
			}
		}
	}
	config, err := json.Marshal(map[string]any{"methodConfig": []any{map[string]any{
		"name": names,
		"retryPolicy": map[string]any{
			"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
			"retryableStatusCodes": []string{"UNAVAILABLE"},
		},
	}}})
	if err != nil {
		panic(err)
	}
	return string(config)
}

// logIn exchanges a key pair for a caller token. The secret is not sent, only a proof of it.
func logIn(ctx context.Context, conn *grpc.ClientConn, keyID, secret string) (string, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	now := time.Now().Unix()
	proof := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(proof, "tarn-login\n%s\n%d\n%x", keyID, now, nonce)
	answer, err := auth.NewSessionServiceClient(conn).LogIn(ctx, &auth.LogInRequest{
		AccessKeyId: keyID,
		SignTime:    &timestamppb.Timestamp{Seconds: now},
		Nonce:       hex.EncodeToString(nonce),
		Signature:   hex.EncodeToString(proof.Sum(nil)),
	})
	return answer.GetGrant().GetCallerToken(), err
}

// list calls visit with each page of the paths below a prefix. A page may be empty before the end.
func list(ctx context.Context, conn *grpc.ClientConn, repository, ref, prefix string, visit func([]string) error) error {
	request := &graveler.ListEntriesRequest{RepositoryId: repository, Ref: ref, Prefix: prefix, PageSize: 1000}
	for {
		page, err := graveler.NewEntryServiceClient(conn).ListEntries(ctx, request)
		if err != nil {
			return err
		}
		if err := visit(page.Paths); err != nil {
			return err
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return nil
		}
	}
}

func cleanUp(ctx context.Context, conn *grpc.ClientConn, repository, prefix string) error {
	const branch = "cleanup"
	branches := graveler.NewBranchServiceClient(conn)
	if _, err := branches.CreateBranch(ctx, &graveler.CreateBranchRequest{
		RepositoryId: repository, BranchId: branch, SourceRef: "main"}); err != nil {
		return err
	}
	err := list(ctx, conn, repository, branch, prefix, func(paths []string) error {
		answer, err := graveler.NewEntryServiceClient(conn).UnstageEntries(ctx, &graveler.UnstageEntriesRequest{
			RepositoryId: repository, BranchId: branch, Paths: paths})
		for i, outcome := range answer.GetOutcomes() {
			if outcome.Error != nil {
				return fmt.Errorf("%s: %s", paths[i], outcome.Error.Message)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	commit, err := graveler.NewCommitServiceClient(conn).CreateCommit(ctx, &graveler.CreateCommitRequest{
		RepositoryId: repository, BranchId: branch, Message: "Clean up " + prefix})
	if err != nil {
		return err
	}
	fmt.Printf("removed %d objects\n", commit.RemovedCount)
	merged, err := graveler.NewMergeServiceClient(conn).Merge(ctx, &graveler.MergeRequest{
		RepositoryId: repository, BranchId: "main", SourceRef: branch})
	if err != nil {
		return err
	}
	fmt.Printf("merged: %s\n", merged.Commit.Message)
	return list(ctx, conn, repository, "main", "", func(paths []string) error {
		for _, path := range paths {
			fmt.Println(path)
		}
		return nil
	})
}

// explain returns the reason of a failed call, and what the call was about.
func explain(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "tarn" {
			return fmt.Sprintf("%s on %s/%s: %v", info.Reason, info.Metadata["repository"], info.Metadata["ref"], err)
		}
	}
	return err.Error()
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: cleanup REPOSITORY PREFIX")
	}
	conn, err := connect(os.Getenv("TARN_SERVER"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	authConn, err := connect(cmp.Or(os.Getenv("TARN_AUTH_SERVER"), os.Getenv("TARN_SERVER")))
	if err != nil {
		log.Fatal(err)
	}
	defer authConn.Close()
	token, err := logIn(ctx, authConn, os.Getenv("TARN_ACCESS_KEY_ID"), os.Getenv("TARN_SECRET_ACCESS_KEY"))
	if err != nil {
		log.Fatal(explain(err))
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	if err := cleanUp(ctx, conn, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(explain(err))
	}
}
