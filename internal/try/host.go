package try

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/dlxctl/dlxctl/internal/apply"
	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/broker/management"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

const (
	// prefix is how the names of scratch virtual hosts begin.
	prefix = "dlxctl-try-"
	// description is the description of scratch virtual hosts. Only a virtual host with the prefix
	// and this description is ever deleted.
	description = "scratch virtual host of dlxctl try; deleted at its end"
	// stamp is the format of the time in the name.
	stamp = "20060102t150405"
	// young is the age at which a scratch virtual host without a queue is not deleted: a trial that
	// has just made it does not hold its lock yet, which is the first queue.
	young = time.Minute
	// drainTime is how long the messages of a trial may need to come to a consumer at its end.
	drainTime = 10 * time.Second
	// drains is how often the queues of a trial are drained at most, if messages come to them again.
	drains = 3
)

// ErrNoRight is wrapped by the error of a trial whose user may not make virtual hosts.
var ErrNoRight = errors.New("no right to make a virtual host")

// errForeign is wrapped by the error of a trial that does not empty its virtual host.
var errForeign = errors.New("another program has published a message there")

// Host is where the virtual hosts of trials are made.
type Host struct {
	Endpoint broker.Endpoint
	// Notice gets a line about what is made and found.
	Notice func(line string)

	// owned reports that everything in the virtual host with the owner mark is of this trial: under
	// the lock of the topology the virtual host was empty.
	owned bool
	// cluster is the one that the file names. A try does not need it, but destroy does.
	cluster string
}

// leftover is the scratch virtual host of a trial.
type leftover struct {
	name string
	// running says that its trial may still run.
	running bool
}

// ending ends a trial: it removes what the trial has made, and closes its session, if it has one.
type ending func(context.Context, *apply.Session) error

// create makes a scratch virtual host, and makes it the one of the endpoint.
func (h *Host) create(ctx context.Context, t topology.Compiled) (ending, error) {
	api, err := management.New(h.Endpoint)
	if err != nil {
		return nil, err
	}
	switch may, err := api.IsAdministrator(ctx); {
	case err != nil:
		return nil, err
	case !may:
		return nil, fmt.Errorf("%w: user %q lacks the tag administrator; grant it on a test broker (rabbitmqctl set_user_tags %s administrator), or pass --in with an empty virtual host in which the user has all permissions", ErrNoRight, api.User(), text.ShellQuote(api.User()))
	}
	left, err := h.leftovers(ctx, api)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		if !l.running {
			h.Notice(fmt.Sprintf("a killed try has left the virtual host %s; 'dlxctl try --clean' deletes it", l.name))
		}
	}
	name := fmt.Sprintf("%s%s-%s-%s", prefix, strings.ToLower(t.Name), time.Now().UTC().Format(stamp),
		strings.ToLower(rand.Text()[:8]))
	end := func(ctx context.Context, s *apply.Session) error {
		defer api.Close()
		if s != nil {
			defer s.Close() // its lock says that the trial runs, until the virtual host is gone
		}
		// Nothing can be lost: only this trial has made the virtual host with the random name, and
		// only messages of the trial were published to it.
		if err := api.DeleteVHost(ctx, name); err != nil {
			return fmt.Errorf("delete the scratch virtual host %s: %w; 'dlxctl try --clean' deletes it", name, err)
		}
		return nil
	}
	// An interrupt does not end the request: the broker could create the virtual host after its
	// deletion.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := api.CreateVHost(after, name, description, h.Endpoint.AMQP.User, api.User()); err != nil {
		return nil, errors.Join(fmt.Errorf("make the scratch virtual host %s: %w", name, err), end(after, nil))
	}
	h.Endpoint.VHost = name
	h.Notice(fmt.Sprintf("trying %s in the scratch virtual host %s", t.Name, name))
	return end, nil
}

// leftovers returns the scratch virtual hosts on the broker, sorted. A trial that runs has the lock
// of its topology, a queue that ends with its connection.
func (h *Host) leftovers(ctx context.Context, api *management.Client) ([]leftover, error) {
	names, err := api.VHostsDescribed(ctx, description)
	if err != nil {
		return nil, err
	}
	var out []leftover
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		queues, locks, err := api.CountQueues(ctx, name)
		if errors.Is(err, broker.ErrNoVHost) || errors.Is(err, broker.ErrNotFound) {
			continue // its trial has deleted it
		}
		// One that cannot be read may be in use.
		running := err != nil || locks > 0 || queues == 0 && isYoung(name, time.Now())
		out = append(out, leftover{name: name, running: running})
	}
	return out, nil
}

// isYoung reports whether a scratch virtual host was made a moment ago, by its name. The clock of
// another machine may be ahead.
func isYoung(name string, now time.Time) bool {
	parts := strings.Split(name, "-")
	if len(parts) < 2 {
		return false
	}
	made, err := time.Parse(stamp, parts[len(parts)-2])
	return err == nil && now.Sub(made).Abs() < young
}

// Clean deletes the scratch virtual hosts of trials that no longer run, and returns their names. It
// deletes virtual hosts that a trial made, and that hold the messages of a trial only.
func (h *Host) Clean(ctx context.Context) ([]string, error) {
	api, err := management.New(h.Endpoint)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	left, err := h.leftovers(ctx, api)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, l := range left {
		if l.running {
			h.Notice(fmt.Sprintf("keeping %s: its try may still run", l.name))
			continue
		}
		if err := api.DeleteVHost(ctx, l.name); err != nil {
			return done, fmt.Errorf("delete the virtual host %s: %w", l.name, err)
		}
		done = append(done, l.name)
	}
	return done, nil
}

// take uses the virtual host of the endpoint, which must be empty.
func (h *Host) take(ctx context.Context, t topology.Compiled) (ending, error) {
	api, err := management.New(h.Endpoint)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	if err := h.refuse(ctx, api, t, ""); err != nil {
		return nil, err
	}
	h.Notice(fmt.Sprintf("trying %s in the virtual host %s", t.Name, h.Endpoint.VHost))
	return func(ctx context.Context, s *apply.Session) error {
		if s != nil {
			s.Close() // another session gets its lock
		}
		if !h.owned {
			return nil // the trial has made nothing, and objects that exist now are of another program
		}
		return h.empty(ctx, t)
	}, nil
}

// lock gets the lock of the topology of a session, and makes sure that its virtual host is empty
// then: another dlxctl may have applied the topology there since take looked.
func (h *Host) lock(ctx context.Context, s *apply.Session) error {
	if err := s.Lock(ctx, "try", 0, h.Notice); err != nil {
		return withoutFlags(err)
	}
	if err := h.refuse(ctx, s.Management, s.Topology, topology.LockName(s.Topology.Name)); err != nil {
		return err
	}
	h.owned = true
	return nil
}

// withoutFlags leaves out what only commands with the flags of apply can do about a lock.
func withoutFlags(err error) error {
	if e, ok := errors.AsType[*apply.LockError](err); ok {
		return fmt.Errorf("%w; run try again", e.Err)
	}
	return err
}

// refuse fails if the virtual host of the endpoint has anything but a lock.
func (h *Host) refuse(ctx context.Context, api *management.Client, t topology.Compiled, lock string) error {
	state, err := api.Inspect(ctx)
	if err != nil {
		return err
	}
	state.Have.Queues = slices.DeleteFunc(state.Have.Queues, func(q topology.Queue) bool { return q.Name == lock })
	what := holds(state)
	if what == "" {
		return nil
	}
	fix := ""
	if isAllOf(state, t.Name) {
		fix = ". If a killed try has left this, delete it: " + h.destroying(topology.DropsRouting, topology.LosesMessages)
	}
	return fmt.Errorf("the virtual host %q is not empty: it has %s; name one that is%s", h.Endpoint.VHost, what, fix)
}

// isAllOf reports whether a topology owns all queues and exchanges.
func isAllOf(s topology.State, name string) bool {
	foreign := func(a topology.Arguments) bool { owner, ok := topology.Owner(a); return !ok || owner != name }
	return !slices.ContainsFunc(s.Have.Queues, func(q topology.Queue) bool { return foreign(q.Arguments) }) &&
		!slices.ContainsFunc(s.Have.Exchanges, func(e topology.Exchange) bool {
			return !isBuiltIn(e) && foreign(e.Arguments)
		})
}

// isBuiltIn reports whether an exchange is one that every virtual host has.
func isBuiltIn(e topology.Exchange) bool { return strings.HasPrefix(e.Name, "amq.") }

// destroying returns the command that deletes what a try has left in the virtual host
// of the endpoint. destroy shows what each hazard means there, and asks before it deletes.
func (h *Host) destroying(allow ...topology.Hazard) string {
	var out strings.Builder
	out.WriteString("dlxctl destroy --vhost " + text.ShellQuote(h.Endpoint.VHost))
	for _, hazard := range allow {
		out.WriteString(" --allow " + string(hazard))
	}
	out.WriteString(" --wait=1m")
	if h.cluster != "" {
		out.WriteString(" (with a file that does not name another cluster than this one)")
	}
	return out.String()
}

// holds names something that a virtual host has, with the number of the rest. Empty: it has only
// what every virtual host has. Policies may be there: they are what an administrator adds to try a
// topology under them.
func holds(s topology.State) string {
	var names []string
	for _, q := range s.Have.Queues {
		names = append(names, "queue "+text.Name(q.Name))
	}
	for _, e := range s.Have.Exchanges {
		if !isBuiltIn(e) {
			names = append(names, "exchange "+text.Name(e.Name))
		}
	}
	for _, b := range s.Have.Bindings {
		names = append(names, "binding "+text.Name(b.DisplayName()))
	}
	return text.FirstOf(names, 1)
}

// empty deletes what a trial has made in the virtual host of the endpoint: what carries the owner
// mark of its topology. The virtual host was empty before, and the user gave it for the trial. If
// another publisher has sent a message there meanwhile, the message is not acknowledged, and
// nothing is deleted.
func (h *Host) empty(ctx context.Context, t topology.Compiled) error {
	session, err := apply.Open(h.Endpoint, plan.Nothing(t))
	if err != nil {
		return err
	}
	defer session.Close()
	err = session.Lock(ctx, "try", drainTime, h.Notice)
	if err == nil {
		err = h.delete(ctx, session, t)
	}
	for n := 1; n < drains && errors.Is(err, broker.ErrRefused); n++ {
		err = h.delete(ctx, session, t) // a queue got a message after it was drained: this sees whose it is
	}
	switch {
	case errors.Is(err, errForeign):
		return fmt.Errorf("empty the virtual host %s: %w; take the message out, and then delete the rest: %s",
			h.Endpoint.VHost, err, h.destroying(topology.DropsRouting))
	case err != nil:
		return fmt.Errorf("empty the virtual host %s: %w; to delete what is left: %s", h.Endpoint.VHost,
			withoutFlags(err), h.destroying(topology.DropsRouting, topology.LosesMessages))
	default:
		return nil
	}
}

// delete drains the queues of a trial, and deletes its objects. Queues go last: without exchanges a
// message can come to them by their names only. A queue that has got a message since it was drained
// is not deleted, and the error is broker.ErrRefused: there is no consent to losing messages.
func (h *Host) delete(ctx context.Context, s *apply.Session, t topology.Compiled) error {
	state, err := s.Management.Inspect(ctx)
	if err != nil {
		return err
	}
	own := func(a topology.Arguments) bool { owner, ok := topology.Owner(a); return ok && owner == t.Name }
	var rest, queues []topology.Object
	for _, p := range state.Have.Policies {
		if owner, ok := topology.PolicyOwner(p.Name); ok && owner == t.Name {
			rest = append(rest, p)
		}
	}
	for _, e := range state.Have.Exchanges {
		if own(e.Arguments) {
			rest = append(rest, e)
		}
	}
	var names []string
	for _, q := range state.Have.Queues {
		if own(q.Arguments) {
			queues, names = append(queues, q), append(names, q.Name)
		}
	}
	if err := h.drain(ctx, s, names); err != nil {
		return err
	}
	for _, o := range slices.Concat(rest, queues) {
		c := plan.Change{
			Action: plan.Delete, Kind: o.Kind(), Name: o.DisplayName(), Before: o,
			Hazards: []topology.Hazard{topology.DropsRouting, topology.StopsConsumers},
		}
		if err := s.Management.Apply(ctx, c); err != nil {
			return fmt.Errorf("delete %s %s: %w", o.Kind(), text.Name(o.DisplayName()), err)
		}
	}
	return nil
}

// drain acknowledges the messages that a trial has left in its queues, after a failure or an
// interrupt. It fails if a queue holds any other message, which stays, or is not empty in time.
func (h *Host) drain(ctx context.Context, s *apply.Session, queues []string) error {
	conn, err := amqp.DialToConsume(ctx, s.Endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var foreign atomic.Pointer[string] // a queue with such a message
	group, serving := errgroup.WithContext(serving)
	for _, q := range queues {
		group.Go(func() error {
			err := conn.Serve(serving, q, func(d amqp091.Delivery) amqp.Answer { return drained(d, q, &foreign) })
			return during(serving, "drain "+text.Name(q), err)
		})
	}
	full := ""
	group.Go(func() error {
		defer stop()
		return poll(serving, drainTime, func() bool {
			full = firstFull(conn, queues)
			return full == "" || foreign.Load() != nil
		})
	})
	switch err := group.Wait(); {
	case err != nil:
		return err
	case foreign.Load() != nil:
		return fmt.Errorf("%w: it is in %s, and that queue is not deleted", errForeign, text.Name(*foreign.Load()))
	case full != "":
		return fmt.Errorf("the queue %s is not empty after %s", text.Name(full), text.Duration(drainTime))
	default:
		return nil
	}
}

// drained acknowledges a message of a trial: it was published to be tried, and no service needs it.
// Every other message stays.
func drained(d amqp091.Delivery, queue string, foreign *atomic.Pointer[string]) amqp.Answer {
	if d.AppId == appID {
		return amqp.Acknowledge
	}
	foreign.Store(&queue)
	return amqp.Keep
}

// firstFull returns a queue that holds a message, or does not answer. Empty: there is none.
func firstFull(conn *amqp.Conn, queues []string) string {
	for _, q := range queues {
		if empty, err := conn.Empty(q); err != nil || !empty {
			return q
		}
	}
	return ""
}
