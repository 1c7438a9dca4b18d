package cmd

import (
	"fmt"

	"github.com/dlxctl/dlxctl/internal/notice"
	"github.com/dlxctl/dlxctl/internal/notify"
	"github.com/dlxctl/dlxctl/internal/spec"
	"github.com/dlxctl/dlxctl/topology"
)

// noticeTargets returns the targets of a topology, with what the environment says. No error quotes
// an address.
func noticeTargets(t topology.Compiled, env func(string) (string, bool)) ([]notify.Target, error) {
	var out []notify.Target
	for i, n := range t.Notify {
		target, err := noticeTarget(n.To, env)
		if err != nil {
			return nil, fmt.Errorf("%s: to of notify: %w", n.Place, err)
		}
		target.Name = fmt.Sprintf("%d %s", i+1, target.Name)
		target.Severities, target.Owners = n.Severities, n.Owners
		if n.Template != "" {
			if target.Template, err = notice.ParseTemplate(n.Template); err != nil {
				return nil, fmt.Errorf("%s: template of notify: %w", n.Place, err)
			}
		}
		out = append(out, target)
	}
	return out, nil
}

// noticeTarget returns the target of an address, in which ${VAR} stands for what the environment
// has.
func noticeTarget(to string, env func(string) (string, bool)) (notify.Target, error) {
	expanded, err := spec.Expand(to, env)
	if err != nil {
		return notify.Target{}, err
	}
	address, err := notice.ParseAddress(expanded)
	return notify.Target{Address: address, Name: address.Name}, err
}
