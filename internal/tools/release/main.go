// Command release makes the files of a release: an archive for each platform, the Debian and rpm
// packages, the container image, a bill of materials for each program, and the checksums. The same
// commit, with the same version of Go, always makes the same bytes. "make packages" runs it.
//
//	release -version v0.1.0 -commit SHA -date 2026-01-02T03:04:05Z FOLDER
//
// With -image FILE it makes the container image alone, as "make image" does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what all files of a release have in common.
type release struct {
	// described is the version as git describes it, and as dlxctl prints it: v0.1.0.
	described string
	// version is the same without what packages cannot have: 0.1.0.
	version string
	// commit is the commit, and date its time in UTC: that of every file.
	commit string
	date   time.Time
	// out is the folder of the finished files, and work one for those that go into them.
	out, work string
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	described := flags.String("version", "", "the version, as git describes it")
	commit := flags.String("commit", "", "the commit")
	date := flags.String("date", "", "the time of the commit, in RFC 3339")
	only := flags.String("only", "", "the platforms, comma-separated, such as linux/amd64 (default all)")
	image := flags.String("image", "", "write nothing but the container image, into this file")
	notes := flags.String("notes", "", "also write the release notes into this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 && *image == "" {
		return fmt.Errorf("name one folder for the files")
	}
	at, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	targets, err := choose(*only)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dlxctl-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := release{*described, packageVersion(*described, at), *commit, at.UTC(), flags.Arg(0), work}
	if *image != "" {
		return r.makeImage(ctx, targets, *image)
	}
	if *notes != "" { // first: a release without notes is not worth a build
		if err := r.writeNotes(*notes); err != nil {
			return err
		}
	}
	return r.make(ctx, targets)
}

// make writes the files of all targets. A folder that exists is replaced: a file of another version
// must not get into the checksums.
func (r release) make(ctx context.Context, targets []target) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	texts, err := r.texts(ctx)
	if err != nil {
		return err
	}
	image, err := r.image()
	if err != nil {
		return err
	}
	for _, t := range targets {
		fmt.Fprintf(os.Stderr, "release: %s %s\n", r.version, t)
		binary, err := r.build(ctx, t)
		if err != nil {
			return err
		}
		if err := r.archive(t, binary, texts); err != nil {
			return err
		}
		if err := r.sbom(t, binary); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.packages(ctx, t, binary, texts); err != nil {
				return err
			}
			if err := image.add(t, binary); err != nil {
				return err
			}
		}
	}
	if len(image.platform) > 0 {
		if err := image.save(filepath.Join(r.out, "dlxctl_"+r.version+"_image.tar")); err != nil {
			return err
		}
	}
	if err := r.channels(ctx, len(targets) == len(allTargets())); err != nil {
		return err
	}
	return sums(r.out)
}

// name returns the name of the file of a target that ends in a suffix, such as ".tar.gz". It has no
// character that a download page changes.
func (r release) name(t target, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("dlxctl_%s_%s_%s%s", r.version, t.os, t.arch, suffix))
}

// packageVersion returns a version as packages have it, from one as git describes it. What is not a
// tag is newer than the tag before it: v0.1.0-5-gabc is 0.1.0+5.gabc. Without any tag the time of
// the commit makes a later version newer.
func packageVersion(described string, at time.Time) string {
	version, tagged := strings.CutPrefix(described, "v")
	if !tagged {
		commit, dirty := strings.CutSuffix(described, "-dirty")
		version = "0.0.0-dev." + at.UTC().Format("20060102150405") + ".g" + commit
		if dirty {
			version += "-dirty"
		}
	}
	version, dirty := strings.CutSuffix(version, "-dirty")
	var more []string
	if parts := strings.Split(version, "-"); tagged && len(parts) >= 3 && strings.HasPrefix(parts[len(parts)-1], "g") {
		more = parts[len(parts)-2:]
		version = strings.Join(parts[:len(parts)-2], "-")
	}
	if dirty {
		more = append(more, "dirty")
	}
	if len(more) == 0 {
		return version
	}
	return version + "+" + strings.Join(more, ".")
}
