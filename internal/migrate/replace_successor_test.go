package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlxctl/dlxctl/internal/brokertest"
	"github.com/dlxctl/dlxctl/internal/migrate"
	"github.com/dlxctl/dlxctl/internal/spec/spectest"
	"github.com/dlxctl/dlxctl/topology"
)

// successorStage is a stage whose legacy queue is cut over to a classic successor, which the file
// now wants as a quorum queue.
func successorStage(t *testing.T) *stage {
	t.Helper()
	file := fmt.Sprintf(topologyFile, "quorum")
	with := func(line string) string {
		return strings.Replace(file, "    replaces", line+"    replaces", 1)
	}
	s := newStageIn(t, brokertest.VHost(t), with("    type: classic\n"), "classic", nil)
	s.cutOver(t)
	s.file = with("    replace: true\n")
	s.want = spectest.Compile(t, s.file)
	return s
}

// A run that drains a legacy queue to its successor and replaces that successor under its name does
// one after the other, also with --parallel: no message is lost and none doubled.
func TestASuccessorIsReplacedAfterItsMigration(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	s := successorStage(t)
	s.fill(t, 500, 10)
	published := s.publish(t, 100*time.Millisecond)
	stop := s.consumeThrough(t, "new")
	r := s.replacer(t)
	r.Parallel = 2
	r.Allow = append(r.Allow, s.runner(t).Allow...)
	if err := r.Run(t.Context()); err != nil {
		t.Errorf("it returns %v", err)
	}
	for _, result := range r.Results() {
		if result.Outcome != migrate.Done {
			t.Errorf("%s is %s: %s", result.Queue, result.Outcome, result.Error)
		}
	}
	confirmed := published()
	s.allArrive(t, confirmed)
	stop()
	if s.exists(t, "old") {
		t.Error("the legacy queue is left")
	}
	s.replaced(t)
}

// While a successor is being replaced under its name, its migration is neither continued nor rolled
// back: the messages wait in the hold of the successor, which has no bindings. Afterwards it is.
func TestAMigrationWaitsForItsSuccessor(t *testing.T) {
	brokertest.OnNewestLine(t)
	t.Parallel()
	for _, step := range []string{"replace: proving", "replace: declared"} {
		t.Run(strings.TrimPrefix(step, "replace: "), func(t *testing.T) {
			t.Parallel()
			s := successorStage(t)
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := s.during(t, step, 1, func() { s.send(t, "f", "", "one", nil); cancel() })
			r.Legacy = []string{"new"}
			if err := r.Run(ctx); err == nil {
				t.Fatal("it was not stopped")
			}
			before := s.target.Definitions(t)
			r = s.runner(t)
			r.Legacy = []string{"old"}
			if err := r.Run(t.Context()); !errors.Is(err, migrate.ErrRefused) {
				t.Errorf("migrate returns %v", err)
			}
			err := r.Abort(t.Context(), s.without(t))
			hold := topology.ReplacementHoldName("shop", "new")
			if !errors.Is(err, migrate.ErrRefused) || !strings.Contains(err.Error(), hold) {
				t.Errorf("abort returns %v", err)
			}
			if now := s.target.Definitions(t); !slices.Equal(now, before) {
				t.Errorf("it was\n%v\nand is\n%v", before, now)
			}
			r = s.replacer(t)
			r.Legacy = []string{"new"}
			if step == "replace: declared" {
				err = r.Run(t.Context())
			} else {
				err = s.replacer(t).Abort(t.Context(), s.without(t)) // of both, and it can do this one
			}
			if err != nil {
				t.Fatal(err)
			}
			s.abort(t, s.replacer(t))
			if n := s.count(t, "old"); n["one"] != 1 || len(n) != 1 {
				t.Errorf("old has %v", n)
			}
			if s.exists(t, "new") {
				t.Error("the successor is left")
			}
			s.nothingLeft(t)
		})
	}
}
