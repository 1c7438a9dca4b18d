package spec

import (
	"fmt"

	"github.com/dlxctl/dlxctl/internal/text"
	"github.com/dlxctl/dlxctl/topology"
)

// delays reads the delays of one file.
func (d *decoder) delays(f fields) {
	for _, n := range d.list(f, "delays") {
		if d.full() || !d.room(n, "delays", len(d.spec.Delays)) {
			break
		}
		x := d.fields(n, "delay", delayKeys(), nil)
		name, ok := d.text(x, "name")
		if !ok {
			continue
		}
		out := Delay{Name: name, Max: topology.DefaultLongestDelay, Pos: d.pos(x, "name"), Overlay: d.overlaid(field{n, n})}
		d.objectName(out.Pos, "exchange", name, false)
		if out.To, ok = d.text(x, "to"); ok {
			out.ToPos = d.pos(x, "to")
		}
		engine, _ := d.word(x, "engine", []string{topology.EngineLevels, topology.EngineNative})
		out.Native = engine == topology.EngineNative
		if out.Native && d.version != "" && !(topology.State{Version: d.version}).DelaysRetries() {
			d.problem(d.pos(x, "engine"),
				fmt.Sprintf("engine: native is for RabbitMQ %s and later, and this file is checked for %s", topology.FirstNative, d.version),
				"write engine: levels, or remove it")
		}
		limit := topology.MaxDelay
		if out.Native {
			limit = topology.LongestTimer
		}
		if longest, given := d.delayUpTo(x, "max", limit); given {
			out.Max = longest
			if longest < topology.ShortestLevel {
				d.problem(d.pos(x, "max"), fmt.Sprintf("max is %s", text.Duration(longest)),
					"the shortest max is "+text.Duration(topology.ShortestLevel)+": write that or more")
			}
		}
		d.spec.Delays = append(d.spec.Delays, out)
	}
}

// delaysTo refuses delays whose messages have nowhere to go.
func (d *decoder) delaysTo() {
	names := text.Each(d.spec.Exchanges, func(e Exchange) string { return e.Name })
	for _, x := range d.spec.Delays {
		if x.ToPos == (Pos{}) { // reported
			continue
		}
		switch to, declared := d.exchange(x.To); {
		case !declared:
			d.problem(x.ToPos, fmt.Sprintf("the delay %q publishes to exchange %q, which is not declared", x.Name, x.To),
				d.didYouMean(x.To, names, "declare it under exchanges, with external: true if another team manages it"))
		case to.Internal:
			d.problem(x.ToPos, fmt.Sprintf("the delay %q publishes to exchange %q, which is internal", x.Name, x.To),
				"RabbitMQ refuses what clients publish to it: remove internal: true, or choose another exchange")
		}
	}
}

// delays adds the exchanges and queues of the delays of the file.
//
// What is published to the exchange comes to its intake queue. The processor publishes each message
// to the headers exchange, with the level in a header, and the level dead-letters it to the due
// queue, once its TTL has passed. From there the processor publishes it again, into the next level
// or to its exchange: see retry.DelayRules. The timer is one more level; [topology.TimerTTL] says
// what its TTL does. No queue here can lose a message: each is without a limit, the levels
// dead-letter at least once, and what expires in the intake queue, because its publisher wants
// that, comes to the due queue too.
func (c *compiler) delays() {
	for _, x := range c.spec.Delays {
		out := topology.NewDelay(c.spec.Name, x.Name, x.To, x.Max, x.Native)
		out.Place = placed(x.Pos, x.Overlay)
		c.place(topology.Key{Kind: topology.KindExchange, Name: x.Name}, out.Place)
		reads := topology.Label{Role: topology.RoleFailed, Delay: x.Name}
		waits := topology.Label{Role: topology.RoleRetry, Delay: x.Name}

		c.exchange(out.Due, topology.Fanout, nil, reads)
		c.queue(out.Due, keeping(), reads)
		c.bind(out.Due, out.Due, "", nil, reads)

		c.exchange(out.LevelExchange, topology.Headers, nil, waits)
		for i, level := range out.Levels {
			c.queue(level.Queue, leading(out.Due).With(topology.ArgMessageTTL, level.Delay.Milliseconds()), waits)
			c.bind(out.LevelExchange, level.Queue, "",
				topology.Arguments{topology.ArgMatch: "all", topology.HeaderDelayLevel: out.LevelValue(i)}, waits)
		}

		// Between its creation and its binding, and while it is removed, what is published to the
		// exchange goes to the unroutable queue.
		c.exchange(x.Name, topology.Fanout,
			topology.Arguments{topology.ArgAlternateExchange: topology.UnroutableName(c.spec.Name)}, reads)
		c.queue(out.Intake, leading(out.Due), reads)
		c.bind(x.Name, out.Intake, "", nil, reads)
		c.out.Delays = append(c.out.Delays, out)
	}
}

// keeping returns the arguments of a queue of a delay. It is a quorum queue, whatever the type of
// the file: a classic queue may lose a message that it dead-letters.
func keeping() topology.Arguments {
	return topology.Arguments{topology.ArgQueueType: topology.Quorum, topology.ArgDeliveryLimit: topology.Unlimited}
}

// leading returns the arguments of a queue that dead-letters to an exchange, at least once, with
// the keys that a message has.
func leading(exchange string) topology.Arguments {
	args := keeping().With(topology.ArgDeadLetterExchange, exchange)
	deadLetterSafely(args)
	return args
}
