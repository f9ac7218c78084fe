// Serves franz-go's schema registry in memory until standard input ends: a stranger's reading of Confluent's HTTP API.
//
//	franz_registry [AUTHORIZATION]
//
// Prints its address. Of compatibility it keeps the levels, and finds every schema compatible.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	var options []srfake.Option
	if len(os.Args) > 1 {
		options = append(options, srfake.WithAuth(os.Args[1]))
	}
	registry := srfake.New(options...)
	defer registry.Close()
	fmt.Println(registry.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
