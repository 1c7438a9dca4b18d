package migrate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/internal/broker"
	"github.com/dlxctl/dlxctl/internal/broker/amqp"
	"github.com/dlxctl/dlxctl/internal/route"
	"github.com/dlxctl/dlxctl/internal/survey"
	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// homeExpires is how long the queue of the canaries exists without a consumer.
const homeExpires = 48 * time.Hour

// longestTTL is the longest time that canaries may need: they must find their queue. One that a
// killed run has left needs it too, as a feeder with at-least-once dead-lettering keeps a message
// that has no queue.
const longestTTL = 24 * time.Hour

// canaryPriority is that of the second canary for a quorum queue, which keeps messages of high
// priority apart: on RabbitMQ 4.0 to 4.2 each of the two kinds is first in, first out by itself.
const canaryPriority = 9

// homeQueue returns the queue to which the canaries of a move come back. It has the name of a queue
// of verify, so that plans leave it alone, and the same in each run, so that it is the only one.
func (m Move) homeQueue() topology.Queue {
	sum := sha256.Sum256([]byte(m.Legacy))
	return topology.Queue{
		Name: topology.VerifyName(m.Topology, "migrate"+hex.EncodeToString(sum[:6])), Durable: true,
		Arguments: topology.Arguments{
			topology.ArgQueueType: topology.Classic, topology.ArgExpires: homeExpires.Milliseconds(),
			topology.ArgManagedBy: topology.DeskMark(m.Topology),
		},
	}
}

// canaryRights returns the rights that a user needs to send canaries and to get them back.
func (m Move) canaryRights() []plan.Right {
	home := m.homeQueue().Name
	return []plan.Right{
		{Permission: plan.Configure, Kind: topology.KindQueue, Name: home},
		{Permission: plan.Read, Kind: topology.KindQueue, Name: home},
		{Permission: plan.Write, Kind: topology.KindExchange, Name: topology.DefaultExchange},
	}
}

// canaryPath returns the queues from which a canary in a feeder comes home, each with one copy. It
// says instead why no canary can be sent there: some other queue could get it, or messages overtake
// others there. It is a pure function of what the broker has.
func (m Move) canaryPath(s *survey.Survey, list []survey.Feeder, feeder string) (last []string, why string) {
	home := m.homeQueue()
	state := s.State
	state.Have.Queues = append(slices.Clone(state.Have.Queues), home)
	router := route.New(state)
	sent := router.Publish("", feeder, canaryHeaders(home.Name))
	if len(sent.Unknown) > 0 || !slices.Equal(sent.Queues, []string{min(feeder, home.Name), max(feeder, home.Name)}) {
		return nil, "the default exchange does not lead there"
	}
	var follow func(queue string, msg route.Message, been []string) string
	follow = func(queue string, msg route.Message, been []string) string {
		if why := unfit(list, queue); why != "" || slices.Contains(been, queue) {
			return why
		}
		dead := router.DeadLetter(queue, msg, route.Expired)
		if len(dead.Unknown)+len(dead.Stuck) > 0 {
			return fmt.Sprintf("it does not show where %s sends messages", text.Name(queue))
		}
		for _, next := range dead.Queues {
			if next == home.Name {
				last = append(last, queue)
			} else if why := follow(next, dead.Message, append(been, queue)); why != "" {
				return why
			}
		}
		if len(dead.Queues) == 0 {
			return fmt.Sprintf("%s returns no messages but those of other queues", text.Name(queue))
		}
		return ""
	}
	why = follow(feeder, sent.Message, nil)
	return last, why
}

// unfit says why canaries may not pass a queue. Empty: they may.
func unfit(list []survey.Feeder, queue string) string {
	i := slices.IndexFunc(list, func(f survey.Feeder) bool { return f.Name == queue })
	if i < 0 {
		return fmt.Sprintf("it could come to %s", text.Name(queue))
	}
	f, name := list[i], text.Name(queue)
	ttl := timeToLive(f.Args)
	switch {
	case f.MayBeConsumed():
		return fmt.Sprintf("%s has %s", name, f.ConsumersText())
	case ttl <= 0:
		return name + " has no x-message-ttl"
	case ttl > longestTTL:
		return name + " has an x-message-ttl of more than a day"
	case f.Args.HasAny(topology.ArgMaxPriority):
		return name + " has priorities"
	case f.Args.HasAny(topology.ArgMaxLength, topology.ArgMaxLengthBytes):
		return name + " has a length limit"
	}
	return ""
}

// timeToLive returns how long messages wait in a queue at most. Zero: it does not say.
func timeToLive(args topology.Arguments) time.Duration {
	ms, _ := args[topology.ArgMessageTTL].(int64)
	return time.Duration(ms) * time.Millisecond
}

func canaryHeaders(home string) map[string]any { return map[string]any{topology.CC: []any{home}} }

// canaries show that all which a legacy queue has dead-lettered has come back from its feeders,
// though these are never empty, because other queues use them too.
//
// A canary is a message of migrate that waits in a feeder for all that was there before it, and
// leaves it for a queue of its own. It is sent to the feeder by the default exchange, with the name
// of its queue in the header CC: a feeder without a dead-letter routing key dead-letters it to both
// names, and the broker drops what would come to the feeder again. So no other queue gets it, no
// binding of others is needed, and once it is home, the messages before it have left. Where another
// queue could get it, none is sent.
//
// A round is a canary for each feeder. It counts only if the drain was the only consumer of the
// legacy queue all the time, on one connection, and took nothing: else a message may have gone into
// a feeder behind its canary. A run that is killed leaves at most its canaries, which come to their
// queue; it goes away by itself, and the next run uses and deletes it.
type canaries struct {
	endpoint broker.Endpoint
	move     Move
	mover    *mover

	in      *amqp.Conn // nil: no round has begun
	source  *amqp.Consumer
	awaited map[string]bool // what has to come, by arrival; nil: no round is under way
	feeders string          // all those of the legacy queue when the round began
	round   standing
	sent    time.Time
	home    time.Time       // when the last one came
	spans   map[string]span // of the feeders in which messages expire apart
}

// span is the shortest and the longest time to live that a queue is known to have had.
type span struct{ least, most time.Duration }

// observe notes how long messages wait in the feeders where one can overtake another: from RabbitMQ
// 4.3 on a quorum queue lets messages expire apart for each of 32 priorities, and those that were
// requeued apart from all others. A canary that expires at once would overtake them. One that waits
// as long as any message leaves last, if the time is the same: the broker notes it when a message
// comes, and a policy may have shortened it since.
func (c *canaries) observe(state topology.State, list []survey.Feeder) {
	if c == nil || !state.AtLeast(4, 3) {
		return
	}
	if c.spans == nil {
		c.spans = map[string]span{}
	}
	for _, f := range list {
		ttl := timeToLive(f.Args)
		if f.Type() != topology.Quorum || ttl <= 0 {
			continue
		}
		known, again := c.spans[f.Name]
		if !again {
			known = span{ttl, timeToLive(f.Arguments)} // no policy makes the declared time longer
		}
		c.spans[f.Name] = span{min(known.least, ttl), max(known.most, ttl)}
	}
}

// expiration returns the time to live of a canary in a feeder, in milliseconds. Where a message
// expires only behind all that were there before it, a canary is to leave as soon as they have.
// Else it is as long as that of the feeder, so that a canary also leaves if the feeder's one is
// gone when it arrives.
func (c *canaries) expiration(f survey.Feeder) string {
	if _, apart := c.spans[f.Name]; apart {
		return strconv.FormatInt(timeToLive(f.Args).Milliseconds(), 10)
	}
	return "1"
}

// late returns how much longer than the canaries other messages may wait in the feeders.
func (c *canaries) late() time.Duration {
	var out time.Duration
	for _, s := range c.spans {
		out += s.most - s.least
	}
	return out
}

// standing is what must stay the same during a round.
type standing struct{ passes, taken int64 }

func (h *mover) standing() standing { return standing{h.passes.Load(), h.taken.Load()} }

// void ends a round that proves nothing.
func (c *canaries) void() {
	if c != nil {
		c.awaited = nil
	}
}

// drop gives up the connection: the next round has another one.
func (c *canaries) drop() {
	c.void()
	c.close()
}

// arrival identifies a copy of a canary that comes home.
func arrival(id, last string) string { return id + " from " + last }

// underWay reports whether a round is under way, with these feeders. It ends one that proves
// nothing.
func (c *canaries) underWay(list []survey.Feeder) bool {
	if c == nil || c.awaited == nil || c.round != c.mover.standing() || c.feeders != names(list) {
		c.void()
		return false
	}
	return true
}

// needed reports whether canaries have to pass feeders. held says which of them holds messages.
// Those that only the legacy queue uses become empty without canaries, and sooner than these leave.
func (c *canaries) needed(list []survey.Feeder, held error) bool {
	return c != nil && held != nil && slices.ContainsFunc(list, func(f survey.Feeder) bool { return f.Used() })
}

// back reports whether all canaries of the round are home, for so long that counts are newer than
// that, and that no message is left that waits longer than they did. It fails if they cannot be
// received.
func (c *canaries) back() (bool, error) {
	for {
		select {
		case d, open := <-c.source.Deliveries():
			if !open {
				return false, fmt.Errorf("receive canaries: %w", c.source.Err())
			}
			d = c.source.Take(d)
			// Nothing is lost: only canaries have the name of this queue.
			if err := c.source.Ack(d.DeliveryTag, false); err != nil {
				return false, fmt.Errorf("acknowledge a canary: %w", err)
			}
			if deaths := deathsOf(d.Headers); len(deaths) > 0 {
				delete(c.awaited, arrival(d.MessageId, deaths[0]))
			}
			if len(c.awaited) == 0 && c.home.IsZero() {
				c.home = time.Now()
			}
			continue
		default:
		}
		return !c.home.IsZero() && time.Since(c.home) > broker.Tick+time.Second+c.late(), nil
	}
}

// send begins a round: it sends canaries through feeders, whose paths are given.
func (c *canaries) send(ctx context.Context, list []survey.Feeder, paths map[string][]string) error {
	now := c.mover.standing()
	home := c.move.homeQueue()
	e := c.endpoint
	e.ConnectionName = "dlxctl migrate " + c.move.Topology + " " + c.move.Legacy + " canaries"
	out, err := amqp.Dial(ctx, e)
	if err != nil {
		return err
	}
	defer out.Close()
	if c.in == nil {
		if err := out.DeclareQueue(home); err != nil {
			return fmt.Errorf("create the queue %s: %w", home.Name, err)
		}
		if c.in, err = amqp.DialToConsume(ctx, e); err != nil {
			return err
		}
		if c.source, err = c.in.Consume(home.Name, prefetch, 0); err != nil {
			return err
		}
	}
	publisher, err := out.Publisher(1)
	if err != nil {
		return err
	}
	awaited := map[string]bool{}
	for _, f := range list {
		if len(paths[f.Name]) == 0 {
			continue
		}
		priorities := []uint8{0}
		if f.Type() == topology.Quorum {
			priorities = append(priorities, canaryPriority)
		}
		for _, priority := range priorities {
			id := rand.Text()
			refused, err := publisher.PublishOne(ctx, "", f.Name, amqp091.Publishing{
				MessageId: id, AppId: "dlxctl migrate", ContentType: "text/plain", DeliveryMode: amqp091.Persistent,
				Expiration: c.expiration(f), Priority: priority, Headers: amqp091.Table(canaryHeaders(home.Name)),
				Body: []byte("a canary of 'dlxctl migrate'; nothing needs it, and it can be deleted"),
			})
			switch {
			case err != nil:
				return fmt.Errorf("send a canary to %s: %w", f.Name, err)
			case refused != "":
				return &fedError{text: fmt.Sprintf("the queue %s does not accept a canary: %s", f.Name, refused)}
			}
			for _, last := range paths[f.Name] {
				awaited[arrival(id, last)] = true
			}
		}
	}
	c.awaited, c.round, c.feeders, c.sent, c.home = awaited, now, names(list), time.Now(), time.Time{}
	return nil
}

// close ends the connection. If the last round is complete, nothing is under way any more, also of
// earlier runs, as canaries do not overtake each other: their queue is deleted. Else it stays for
// those that are under way, and expires.
func (c *canaries) close() {
	if c.in == nil {
		return
	}
	if complete := c.awaited != nil && len(c.awaited) == 0; complete && c.source.Stop() == nil {
		// Nothing is lost: the broker deletes a classic queue only if it is empty and unused.
		_ = c.in.DeleteQueue(c.move.homeQueue().Name, amqp.Conditions{Unused: true, Empty: true}) // it expires
	}
	_ = c.in.Close()
	c.in = nil
}
