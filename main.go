// Command dlxctl gives RabbitMQ queues dead-lettering and retries with backoff
// from one declarative file.
package main

import (
	"os"

	"github.com/dlxctl/dlxctl/cmd"
)

func main() {
	os.Exit(cmd.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
