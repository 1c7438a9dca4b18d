package e2e_test

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/brokertest"
)

// desk serve --cluster shows two virtual hosts with the same queues. The command line that the page
// prints for one of them acts there, in a shell whose environment names another broker, and nowhere
// in a shell that lacks its variables. The password is in none.
func TestCommandLinesOfClusters(t *testing.T) {
	t.Parallel()
	prod, test, elsewhere := brokertest.VHost(t), brokertest.VHost(t), brokertest.VHost(t)
	file := writeTopology(t, "version: 1\nname: shop\nqueues: [{name: billing, backoff: none}]\n")
	for _, target := range []brokertest.Target{prod, test, elsewhere} {
		start(t, target, "apply", "-f", file, "--yes").exits(t, 0)
		brokertest.PublishConfirmed(t, target.Confirming(t), "", "billing.dead", amqp091.Publishing{Body: []byte("{}")})
	}
	one, err := url.Parse(prod.URL)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(filepath.Dir(file), "clusters.yaml")
	writeTo(t, list, `
clusters:
  - {name: prod, url: "`+one.Scheme+"://"+prod.Username+":${PROD_PASSWORD}@"+one.Host+`", api: "`+prod.API+`",
     vhost: "`+prod.VHost+`", file: topology.yaml}
  - {name: test, url: "${TEST_URL}", api: "${TEST_API}"}
`)
	variables := []string{
		"PROD_PASSWORD=" + url.QueryEscape(prod.Password), "TEST_URL=" + test.URL, "TEST_API=" + test.API,
	}
	p := command(t, elsewhere, "desk", "serve", "--cluster", list, "--allow", "park", "--listen", "127.0.0.1:0")
	p.Env = append(p.Env, variables...)
	p.begin(t)
	b := openPage(t, p)
	if !strings.Contains(p.stdout.String(), "The desk of 2 clusters: ") {
		t.Errorf("printed %s", &p.stdout)
	}
	left := func() (n [3]int) {
		for i, target := range []brokertest.Target{prod, test, elsewhere} {
			n[i] = brokertest.Ready(t, target.Channel(t), "billing.dead")
		}
		return n
	}
	for i, cluster := range []string{"test", "prod"} {
		ask := map[string]any{"action": "park", "queue": "billing.dead"}
		line, _ := b.call("POST", "/api/propose?cluster="+cluster, ask, 200)["command"].(string)
		if strings.Contains(line, prod.Password) && len(prod.Password) > 5 || strings.Contains(line, test.URL) {
			t.Errorf("the command line has the password: %s", line)
		}
		bare := commandOf(t, elsewhere, exec.CommandContext(t.Context(), "sh", "-c", line))
		bare.begin(t)
		if <-bare.ended; bare.ProcessState.ExitCode() == 0 || !strings.Contains(bare.stderr.String(), "parameter") {
			t.Errorf("without its variables %s ends with %d: %s", line, bare.ProcessState.ExitCode(), &bare.stderr)
		}
		if got := left(); got != [][3]int{{1, 1, 1}, {1, 0, 1}}[i] {
			t.Errorf("before the command: %v", got)
		}
		run := commandOf(t, elsewhere, exec.CommandContext(t.Context(), "sh", "-c", line))
		run.Env = append(run.Env, variables...)
		run.begin(t)
		run.exits(t, 0)
		if got := left(); got != [][3]int{{1, 0, 1}, {0, 0, 1}}[i] {
			t.Errorf("after %s: %v", line, got)
		}
	}
	p.signal(t, syscall.SIGINT)
	p.exits(t, 0)
	if log := p.stdout.String() + p.stderr.String(); len(test.Password) > 5 && strings.Contains(log, test.Password) {
		t.Errorf("the password is in the output: %s", log)
	}
}
