package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/topology"
)

// fallbackName is the name of a topology where the objects suggest none.
const fallbackName = "main"

// nameFor makes the name of a topology: of the virtual host, or else of what the caller suggests,
// or of the first part that most names of queues share. It is none that another topology has, and
// no object has a name that dlxctl would make of it.
func nameFor(state topology.State, v view, fallback string) string {
	name := cmp.Or(identifier(state.VHost), identifier(fallback), identifier(commonPrefix(v)), fallbackName)
	for i, base := 2, name; taken(state, name) != ""; i++ {
		if name = base + "-dlx"; i > 2 {
			name = fmt.Sprintf("%s-dlx%d", base, i-1)
		}
	}
	return name
}

// maxNameBytes leaves room for what makes a name unique: names of topologies have at most 63.
const maxNameBytes = 50

// identifier makes a name of letters, digits, _ and - of any text. It may be empty.
func identifier(s string) string {
	s = regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(s, "-")
	s = strings.Trim(s, "-_")
	return strings.TrimRight(s[:min(len(s), maxNameBytes)], "-_")
}

// commonPrefix returns the first part of names that more than half of the queues share.
func commonPrefix(v view) string {
	counts := map[string]int{}
	for _, q := range v.queues {
		if part := firstPart(q.Name); part != q.Name {
			counts[part]++
		}
	}
	for part, n := range counts {
		if 2*n > len(v.queues) {
			return part
		}
	}
	return ""
}

// firstPart returns a name up to its first separator.
func firstPart(name string) string {
	part, _, _ := strings.Cut(name, separator(name))
	return part
}

// separator returns the first of the signs that separate parts of a name. It is a sign that the
// name does not have where there is none.
func separator(name string) string {
	if i := strings.IndexAny(name, ".:/-_"); i > 0 {
		return name[i : i+1]
	}
	return "\x00"
}

// checkName refuses a name that a user chose, and that other objects use.
func checkName(state topology.State, name string) error {
	if why := taken(state, name); why != "" {
		return fmt.Errorf("%s; choose another name for the topology", why)
	}
	return nil
}

// taken says which object makes a name unfit for a new topology. A plan would take objects with
// its owner mark, or with names that dlxctl generates, for objects of that topology.
func taken(state topology.State, name string) string {
	for _, e := range state.Have.Exchanges {
		if clash(name, e.Name, e.Arguments) {
			return fmt.Sprintf("exchange %q belongs to a topology %q, or is named like its objects", e.Name, name)
		}
	}
	for _, q := range state.Have.Queues {
		if clash(name, q.Name, q.Arguments) {
			return fmt.Sprintf("queue %q belongs to a topology %q, or is named like its objects", q.Name, name)
		}
	}
	for _, b := range state.Have.Bindings {
		if owner, _ := topology.Owner(b.Arguments); owner == name {
			return fmt.Sprintf("binding %q belongs to a topology %q", b.String(), name)
		}
	}
	for _, p := range state.Have.Policies {
		owner, _ := topology.PolicyOwner(p.Name)
		if owner == name || topology.IsSwitchName(name, p.Name) {
			return fmt.Sprintf("policy %q belongs to a topology %q", p.Name, name)
		}
	}
	return ""
}

// clash reports whether an exchange or queue has the owner mark of a topology, or a name that
// dlxctl returns to an object of it.
func clash(name, object string, args topology.Arguments) bool {
	owner, _ := topology.Owner(args)
	if owner == name || strings.HasPrefix(owner, name+"/") {
		return true
	}
	if !strings.HasPrefix(object, name+".") {
		return false
	}
	fixed := []string{
		topology.UnroutableName(name), topology.DeadLetterName(name), topology.ReturnExchangeName(name),
		topology.FailedExchangeName(name), topology.LockName(name), topology.ParkedName(name),
		topology.NextExchangeName(topology.FailedExchangeName(name)),
		topology.NextExchangeName(topology.DeadLetterName(name)),
	}
	_, failed := topology.FailedBackoff(name, object)
	for _, backoff := range []string{standardBackoff, handBackoff} {
		retry := topology.RetryExchangeName(name, backoff)
		fixed = append(fixed, retry, topology.NextExchangeName(retry))
	}
	return slices.Contains(fixed, object) || topology.IsRetryQueueName(name, object) || failed ||
		topology.IsSwitchName(name, object) || strings.HasPrefix(object, topology.HoldName(name, ""))
}
