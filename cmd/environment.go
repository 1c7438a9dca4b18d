package cmd

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlxctl/dlxctl/topology"
)

// variablePrefix is the prefix of dlxctl's environment variables.
const variablePrefix = "DLXCTL_"

// consents reports whether a flag gives consent that no variable set long ago may give:
// write without confirmation, lose messages, overwrite a file, show what is masked.
func consents(flag string) bool {
	return slices.Contains([]string{
		"yes", "allow", "force", // of all commands
		"forward",                                        // of migrate: the broker forwards at most once
		"expect", "again", "forever", "beside-consumers", // of the desk
		"raw", "show-bodies", // of looks
	}, flag)
}

func ownVariable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variables returns the environment variables that set a flag, in order of precedence.
// A flag that gives consent has none.
func variables(flag string) []string {
	own := ownVariable(flag)
	switch {
	case flag == "help" || flag == "version" || consents(flag):
		return nil
	case flag == "url":
		return []string{own, "RABBITMQ_URL"}
	case flag == "api":
		return []string{own, "RABBITMQ_API_URL"}
	default:
		return []string{own}
	}
}

// fromEnvironment sets each flag that is not on the command line to the value of its
// variable.
func (a *app) fromEnvironment(c *cobra.Command) error {
	if a.environ != nil {
		warnOfUnknownVariables(a.stderr, a.environ(), c.Root())
	}
	var problem error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && problem == nil {
			problem = setFromEnvironment(a.env, f)
		}
	})
	if problem != nil {
		return usageError{problem}
	}
	if err := a.checkGlobals(c); err != nil {
		return err
	}
	if a.conn.InsecureSkipVerify {
		fmt.Fprintln(a.stderr,
			"dlxctl: WARNING: TLS certificate verification is off (--insecure-skip-verify): an attacker on the network can read the password and every message")
	}
	return nil
}

// setFromEnvironment sets one flag to the value of the first of its variables that is set
// and not empty. An empty variable sets none but the URL, whose default is another broker.
func setFromEnvironment(env func(string) (string, bool), f *pflag.Flag) error {
	if v, ok := env(ownVariable(f.Name)); consents(f.Name) && ok && v != "" {
		return fmt.Errorf("%s is set, but consent cannot come from a variable; unset it and pass --%s on the command line",
			ownVariable(f.Name), f.Name)
	}
	for _, name := range variables(f.Name) {
		v, ok := env(name)
		if !ok {
			continue
		}
		if v == "" {
			if f.Name == "url" {
				f.Value.Set("") //nolint:errcheck,gosec // a text takes any value
			}
			continue
		}
		if err := f.Value.Set(v); err != nil {
			return badValue(name, v, f, err)
		}
		return nil
	}
	return nil
}

// badValue returns the error for a flag or variable whose value has the wrong type. It
// names the values that the type accepts.
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

// badFlag adds a fix to an error of the flag parser.
func badFlag(c *cobra.Command, err error) error {
	value, wrong := errors.AsType[*pflag.InvalidValueError](err)
	unknown, missing := errors.AsType[*pflag.NotExistError](err)
	switch {
	case wrong:
		f := value.GetFlag()
		return usageError{badValue("--"+f.Name, value.GetValue(), f, value.Unwrap())}
	case missing && unknown.GetSpecifiedShortnames() == "":
		if fix := meantFlag(c, unknown.GetSpecifiedName()); fix != "" {
			return usageError{fmt.Errorf("%w; %s", err, fix)}
		}
	}
	return usageError{err}
}

// meantFlag returns the fix for a flag that the command does not have. Empty: none is
// known.
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
	return topology.DidYouMean("--"+name, names, "")
}

// warnOfUnknownVariables warns of variables with dlxctl's prefix that set nothing: a typo
// in the name would otherwise go unnoticed. It is not an error, because other tools may use
// the prefix too. The values may be secrets and are not shown.
func warnOfUnknownVariables(stderr io.Writer, environ []string, root *cobra.Command) {
	known := map[string]bool{}
	var names []string
	visitFlags(root, func(f *pflag.Flag) {
		if name := ownVariable(f.Name); !known[name] {
			known[name] = true
			names = append(names, name)
		}
	})
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || known[name] || isForOthers(name) {
			continue
		}
		text := name + " sets no flag of dlxctl"
		if fix := topology.DidYouMean(name, names, ""); fix != "" {
			text += "; " + strings.NewReplacer(`"`, "").Replace(fix)
		}
		fmt.Fprintln(stderr, "dlxctl: warning:", text)
	}
}

// isForOthers reports whether a variable has a known other use: in the project's own
// scripts and tests, in the pipeline that posts plans, or in a pod of Kubernetes, which
// sets variables for a Service called dlxctl.
func isForOthers(name string) bool {
	if slices.Contains([]string{"DLXCTL_CACHE", "DLXCTL_DEBIAN_MIRROR", "DLXCTL_SOAK", "DLXCTL_GITLAB_TOKEN"}, name) {
		return true
	}
	return strings.HasPrefix(name, "DLXCTL_TEST_") ||
		regexp.MustCompile(`^DLXCTL_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP)(_.*)?)$`).MatchString(name)
}

// visitFlags calls visit for each flag of c and of each command below it, maybe more than once. It
// leaves out what c inherits: every start visits all flags, and each command would repeat the
// global ones.
func visitFlags(c *cobra.Command, visit func(*pflag.Flag)) {
	c.Flags().VisitAll(visit)
	c.PersistentFlags().VisitAll(visit)
	for _, sub := range c.Commands() {
		visitFlags(sub, visit)
	}
}
