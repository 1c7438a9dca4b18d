package cmd

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/spec"
)

// variablePrefix begins every environment variable of dlxctl's own.
const variablePrefix = "DLXCTL_"

// consents reports whether a flag allows something that nobody should do by a
// variable set long ago: write without asking, lose messages, overwrite a file.
func consents(flag string) bool { return slices.Contains([]string{"yes", "allow", "force"}, flag) }

// ownVariable names the variable of a flag.
func ownVariable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variables names the environment variables that set a flag, the stronger first.
// A flag that consents has none.
func variables(flag string) []string {
	own := ownVariable(flag)
	switch {
	case flag == "help" || consents(flag):
		return nil
	case flag == "url":
		return []string{own, "RABBITMQ_URL"}
	case flag == "api":
		return []string{own, "RABBITMQ_API_URL"}
	default:
		return []string{own}
	}
}

// fromEnvironment gives each flag that the command line left out the value of
// its variable.
func (a *app) fromEnvironment(c *cobra.Command) error {
	a.warnOfUnknownVariables(c.Root())
	var problem error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && problem == nil {
			problem = a.setFromEnvironment(f)
		}
	})
	if problem != nil {
		return usageError{problem}
	}
	if err := a.checkGlobals(c); err != nil {
		return err
	}
	if a.conn.InsecureSkipVerify {
		fmt.Fprintln(a.stderr, "dlxctl: WARNING: the broker's certificate is not checked (--insecure-skip-verify): anybody on the way can read the password and every message")
	}
	return nil
}

// setFromEnvironment gives one flag the value of the first of its variables that
// is set and not empty.
func (a *app) setFromEnvironment(f *pflag.Flag) error {
	if v, ok := a.env(ownVariable(f.Name)); consents(f.Name) && ok && v != "" {
		return fmt.Errorf("%s is set, and no variable can consent; unset it and write --%s on the command line", ownVariable(f.Name), f.Name)
	}
	for _, name := range variables(f.Name) {
		v, ok := a.env(name)
		if !ok || v == "" {
			continue
		}
		if err := f.Value.Set(v); err != nil {
			return badValue(name, v, f, err)
		}
		return nil
	}
	return nil
}

// badValue says that a flag or variable has a value that its type does not take,
// and which values it takes.
func badValue(name, value string, f *pflag.Flag, cause error) error {
	fix := ""
	switch f.Value.Type() {
	case "bool":
		fix = "write true or false"
	case "int":
		fix = "write a whole number"
	case "duration":
		fix = "write a time with its unit, such as 30s or 5m"
		if _, err := strconv.Atoi(value); err == nil {
			fix = fmt.Sprintf("write %ss or %sm", value, value)
		}
	default:
		return fmt.Errorf("%s is %q: %w", name, value, cause)
	}
	return fmt.Errorf("%s is %q; %s", name, value, fix)
}

// badFlag puts an error of the flag parser into words that name the remedy.
func badFlag(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		return usageError{badValue("--"+f.Name, value.GetValue(), f, value.Unwrap())}
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		if fix := meantFlag(c, unknown.GetSpecifiedName()); fix != "" {
			return usageError{fmt.Errorf("%w; %s", err, fix)}
		}
	}
	return usageError{err}
}

// meantFlag gives the remedy for a flag that the command does not have, or nothing.
func meantFlag(c *cobra.Command, name string) string {
	switch name {
	case "auto-approve", "assume-yes", "non-interactive":
		if c.Flags().Lookup("yes") != nil {
			return `did you mean "--yes"?`
		}
	case "dry-run":
		if c.Name() == "apply" {
			return "'dlxctl plan' shows what apply would do"
		}
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return spec.DidYouMean("--"+name, names, "")
}

// warnOfUnknownVariables names variables that look like dlxctl's and set nothing: a
// slip in the name would otherwise go unseen. It is a warning, as others may use
// such names too. The values may be secrets and are not shown.
func (a *app) warnOfUnknownVariables(root *cobra.Command) {
	if a.environ == nil {
		return
	}
	known := map[string]bool{}
	var names []string
	visitFlags(root, func(f *pflag.Flag) {
		if name := ownVariable(f.Name); !known[name] {
			known[name] = true
			names = append(names, name)
		}
	})
	environ := a.environ()
	slices.Sort(environ)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || known[name] || isForOthers(name) {
			continue
		}
		text := name + " is no variable of dlxctl"
		if fix := spec.DidYouMean(name, names, ""); fix != "" {
			text += "; " + strings.NewReplacer(`"`, "").Replace(fix)
		}
		fmt.Fprintln(a.stderr, "dlxctl: warning:", text)
	}
}

// isForOthers reports whether a variable is known to be for something else: the
// project's own scripts and tests, the pipeline that posts plans, and what
// Kubernetes sets in each pod for a Service called dlxctl.
func isForOthers(name string) bool {
	if slices.Contains([]string{"DLXCTL_CACHE", "DLXCTL_DEBIAN_MIRROR", "DLXCTL_SOAK", "DLXCTL_GITLAB_TOKEN"}, name) {
		return true
	}
	return strings.HasPrefix(name, "DLXCTL_TEST_") || regexp.MustCompile(`^DLXCTL_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP)(_.*)?)$`).MatchString(name)
}

// visitFlags calls visit for each flag of each command below c.
func visitFlags(c *cobra.Command, visit func(*pflag.Flag)) {
	c.InheritedFlags() // makes Flags complete
	c.Flags().VisitAll(visit)
	for _, sub := range c.Commands() {
		visitFlags(sub, visit)
	}
}
