package page

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// Role is what a person may do who has signed in with a provider. Each role may do what those
// before it may. The zero value is a person who has not signed in.
type Role int

const (
	noRole Role = iota
	// reader looks at messages and runs.
	reader
	// operator also replays, parks and restores.
	operator
	// editor also discards, and edits messages.
	editor
)

// roleWords are the words of each role, and the words of --allow that it adds.
//
//nolint:gochecknoglobals // a constant table
var roleWords = []struct {
	name string
	may  []string
}{
	reader:   {name: "reader"},
	operator: {"operator", []string{"replay", "park"}},
	editor:   {"editor", []string{"discard", "edit"}},
}

// String returns the word of a role, as --role takes it.
func (r Role) String() string { return roleWords[r].name }

func (r Role) allows() Allowed {
	var words []string
	for role := reader; role <= r; role++ {
		words = append(words, roleWords[role].may...)
	}
	a, err := ParseAllowed(words)
	if err != nil {
		panic(err) // the words are constants, and a test reads them
	}
	return a
}

// Grant is a role for the members of a group.
type Grant struct {
	Role  Role
	Group string
}

// ParseGrants reads the values of --role, such as reader=support.
func ParseGrants(values []string) ([]Grant, error) {
	var out []Grant
	for _, value := range values {
		word, group, _ := strings.Cut(value, "=") // a group may have = in its name
		role := reader
		for role <= editor && role.String() != word {
			role++
		}
		if role > editor || group == "" {
			return nil, fmt.Errorf("--role %q is not a role and a group; write reader=GROUP, operator=GROUP or editor=GROUP", value)
		}
		out = append(out, Grant{role, group})
	}
	return out, nil
}

// roleOf returns the highest role that the groups of a person give.
func roleOf(grants []Grant, groups []string) Role {
	role := noRole
	for _, g := range grants {
		if slices.Contains(groups, g.Group) {
			role = max(role, g.Role)
		}
	}
	return role
}

// person is who uses the page.
type person struct {
	// name is written into the runs of the person. subject is the name that the provider never gives
	// to another person.
	name, subject string

	role  Role
	allow Allowed
	// signedIn: a provider has said who it is, and the role says what the person may do. If not, it
	// is who started the page, and --allow does.
	signedIn bool
}

// refusal says why an action is not done, and how to go on.
func (w person) refusal(action desk.Action) string {
	if !w.signedIn || action.Kind().AllowedBy == "" {
		return w.allow.refusal(action)
	}
	least := w.role
	for least < editor && !least.allows().permits(action) {
		least++
	}
	return w.lacks(string(action), least)
}

// lacks says that a person needs a higher role to do something.
func (w person) lacks(do string, least Role) string {
	return fmt.Sprintf("your role, %s, may not %s; it needs the role %s, which the groups of --role give",
		w.role, do, least)
}

type personKey struct{}

// personOf returns who sent a request. Without one it is a person who may do nothing.
func personOf(r *http.Request) person {
	who, _ := r.Context().Value(personKey{}).(person)
	return who
}
