package importer

import (
	"fmt"
	"strings"

	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
)

// delayer returns the framework that declares a delay queue of this name, with an exchange of the
// same name, and what the names of all of them begin with. Each queue is one bit of a delay in
// seconds: a message passes those whose bits are set (NServiceBus.RabbitMQ, DelayInfrastructure.cs;
// kombu, native_delayed_delivery.py). It reports false for other names.
func delayer(name string) (framework, prefix string, ok bool) {
	for _, known := range []struct{ framework, prefix string }{
		{"NServiceBus", "nsb.v2.delay-level-"}, {"NServiceBus", "nsb.delay-level-"}, {"Celery", "celery_delayed_"},
	} {
		bit, found := strings.CutPrefix(name, known.prefix)
		if found && bit != "" && strings.Trim(bit, "0123456789") == "" {
			return known.framework, known.prefix, true
		}
	}
	return "", "", false
}

// delaysOf returns the delay queues of frameworks, by what their names begin with.
func (v *view) delaysOf() map[string][]*survey.Queue {
	out := map[string][]*survey.Queue{}
	for _, q := range v.survey.Queues {
		if _, prefix, ok := delayer(q.Name); ok && q.Role == survey.Delay {
			out[prefix] = append(out[prefix], q)
		}
	}
	return out
}

func delaysText(framework string, queues []*survey.Queue) string {
	out := fmt.Sprintf("Delayed messages of %s wait here, in one queue after the other. %[1]s declares %s, and needs %[2]s unchanged.",
		framework, text.Choose(len(queues), "it", "them"))
	for _, q := range queues {
		if !q.To.AtLeastOnce {
			return out + " A delayed message is lost if the next queue cannot take it (dead-letters-at-most-once)."
		}
	}
	return out
}

// isDelayExchange reports whether the file leaves out an exchange, because it leads to a delay
// queue of a framework, which the file does not declare either.
func (v *view) isDelayExchange(name string) bool {
	_, _, ok := delayer(name)
	q := v.survey.Queue(name)
	return ok && !v.adopt && q != nil && q.Role == survey.Delay
}
