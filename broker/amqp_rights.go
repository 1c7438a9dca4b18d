package broker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/dlxctl/dlxctl/plan"
	"github.com/dlxctl/dlxctl/topology"
)

// probesAtOnce is how many rights are tried at the same time, each on a channel
// of its own.
const probesAtOnce = 16

// lacks gives those of rights that the broker refuses the user of the
// connection. Nothing is written: what is tried cannot succeed, or does nothing.
//
// Configure is tried by declaring with an argument that no broker accepts:
// without the right that is answered with 403, with it by 406. Write and read
// are tried by taking away a binding between exchanges that cannot exist, as its
// key was drawn just now: the right to write the destination is looked at first,
// then the one to read the source, and 403 names the object. Permissions are for
// names, whatever the object. Measured on 3.10.8, 4.0.5 and 4.3.6.
func (c *Conn) lacks(rights []plan.Right) ([]plan.Right, error) {
	var first, reads []plan.Right
	writable := "" // a name that the user may write
	for _, r := range rights {
		if r.Permission == plan.Read {
			reads = append(reads, r)
		} else {
			first = append(first, r)
		}
	}
	lacking, err := c.probe(first, "")
	if err != nil {
		return nil, err
	}
	refused := map[plan.Right]bool{}
	for _, r := range lacking {
		refused[r] = true
	}
	for _, r := range first {
		if r.Permission == plan.Write && !refused[r] {
			writable = r.Name
		}
	}
	if writable == "" {
		return lacking, nil // nothing can be read about reading then
	}
	more, err := c.probe(reads, writable)
	return append(lacking, more...), err
}

// probe tries rights at the same time.
func (c *Conn) probe(rights []plan.Right, writable string) ([]plan.Right, error) {
	var mu sync.Mutex
	var lacking []plan.Right
	var failed error
	next := make(chan plan.Right)
	var wg sync.WaitGroup
	for range min(probesAtOnce, len(rights)) {
		wg.Go(func() {
			for r := range next {
				refused, err := c.refuses(r, writable)
				mu.Lock()
				if refused {
					lacking = append(lacking, r)
				}
				failed = cmp.Or(failed, err) // the others are of the same kind: the connection is gone
				mu.Unlock()
			}
		})
	}
	for _, r := range rights {
		next <- r
	}
	close(next)
	wg.Wait()
	return lacking, failed
}

// refuses tries one right. One that cannot be tried counts as there: if it is not,
// the change itself says so.
func (c *Conn) refuses(r plan.Right, writable string) (bool, error) {
	if !c.mayBeTried(r) {
		return false, nil
	}
	ch, err := c.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	defer ch.Close() // of a refused channel it does nothing
	switch {
	case r.Permission == plan.Write:
		err = ch.ExchangeUnbind(r.Name, rand.Text(), "amq.direct", false, nil)
	case r.Permission == plan.Read:
		err = ch.ExchangeUnbind(writable, rand.Text(), r.Name, false, nil)
	case r.Kind == topology.KindQueue:
		_, err = ch.QueueDeclare(r.Name, true, false, false, false, amqp.Table{"x-expires": int32(0)})
	default:
		err = ch.ExchangeDeclare(r.Name, topology.Direct, true, false, false, false, amqp.Table{topology.ArgAlternateExchange: int32(1)})
	}
	var answer *amqp.Error
	switch {
	case err == nil:
		return false, nil
	case !errors.As(err, &answer) || !answer.Server:
		return false, err
	default:
		return answer.Code == amqp.AccessRefused && names(answer.Reason, r.Name), nil
	}
}

// maxReason is the length of the longest text of an error over AMQP, in bytes. The
// broker cuts longer ones, and ends them with three dots.
const maxReason = 255

// names reports whether the text of an error is about the object of that name.
func names(reason, name string) bool {
	_, object, _ := strings.Cut(reason, " '")
	if strings.HasPrefix(object, name+"' ") {
		return true
	}
	begin, cut := strings.CutSuffix(object, "...")
	return cut && len(reason) >= maxReason-5 && strings.HasPrefix(name+"' ", begin)
}

// mayBeTried reports whether an error about a name would fit the text of an error,
// or can be cut. Where there is more than ASCII in it, the broker fails to cut it,
// and closes the whole connection with 541 (measured on 4.3.6).
func (c *Conn) mayBeTried(r plan.Right) bool {
	const around = 100 // what the broker writes beside the names, and some
	text := r.Name + c.endpoint.VHost + c.endpoint.AMQP.User
	return len(text)+around <= maxReason || !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}
