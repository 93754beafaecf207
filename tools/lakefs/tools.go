//go:build tools

// Package tools pins lakectl and the server, lakeFS, for tests of clients (tools/setup lakectl lakefs).
package tools

import (
	_ "github.com/treeverse/lakefs/cmd/lakectl"
	_ "github.com/treeverse/lakefs/cmd/lakefs"
	_ "github.com/treeverse/lakefs/esti"
)
