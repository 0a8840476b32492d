package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/progress"
)

// runMirror mirrors a source until ctx is canceled. With -once, it returns after one run, with
// errDifferences if resources are missing.
func (p *program) runMirror(ctx context.Context) (err error) {
	p.makeClients()
	h, err := home.Open(p.dir, p.adopt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, ok, err := h.Settings(); err != nil || ok {
		if err == nil {
			err = h.SaveSettings(p.settings)
		}
		if err != nil {
			return err
		}
	}
	sink, err := p.sink(h)
	if err != nil {
		return err
	}
	source, err := p.findSource(ctx)
	if err == nil {
		err = h.SaveSettings(p.settings) // not earlier, because the URL may be wrong
	}
	if err != nil {
		return err
	}
	remaining, err := mirror.New(h, source, sink, p.mirrorOptions()).Run(ctx, p.once)
	if err != nil || !p.once {
		return err
	}
	return p.summarize(ctx, h, remaining)
}

// sink returns the Sink that -to selects.
func (p *program) sink(h *home.Home) (mirror.Sink, error) {
	command, isCommand := strings.CutPrefix(p.settings.To, "exec:")
	switch {
	case isCommand:
		shell := []string{"/bin/sh", "-c"}
		if runtime.GOOS == "windows" {
			shell = []string{"cmd", "/C"}
		}
		return &mirror.Command{Name: shell[0], Args: append(shell[1:], command), Stdout: p.stdout, Stderr: p.stderr, OnRetry: p.printRetry}, nil
	case p.settings.To != "":
		return mirror.Lines{W: p.stdout}, nil
	}
	return mirror.NewDirectory(h, mirror.DirectoryOptions{
		Fetcher: p.fetcher, Names: p.settings.Names, MaxDelete: p.maxDelete, OnAction: p.report.record,
	})
}

// A summary is the result of a run with -once.
type summary struct {
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Fetched int   `json:"fetched"`
	Kept    int   `json:"kept"`
	Removed int   `json:"removed"`
	Missing int64 `json:"missing"`
}

// newSummary returns a summary with the actions of the run so far.
func (p *program) newSummary(files, bytes, missing int64) summary {
	n := p.report.counts()
	return summary{files, bytes, n.fetched, n.kept, n.removed, missing}
}

func (s summary) String() string {
	return fmt.Sprintf("%s files, %s: %s fetched, %s removed, %s missing", progress.Group(int(s.Files)), formatBytes(s.Bytes),
		progress.Group(s.Fetched), progress.Group(s.Removed), progress.Group(int(s.Missing)))
}

// summarize prints the counts of a run, and some of the missing resources. It returns
// errDifferences if resources are missing.
func (p *program) summarize(ctx context.Context, h *home.Home, remaining mirror.Backlog) (err error) {
	n := h.Ledger.Counts()
	s := p.newSummary(n.Files, n.Bytes, remaining.Resources)
	p.report.Clear()
	switch {
	case p.settings.To != "":
		return nil
	case p.json:
		err = json.NewEncoder(p.stdout).Encode(s)
	case !p.quiet:
		_, err = fmt.Fprintln(p.stdout, s)
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	if remaining.Resources == 0 {
		return nil
	}
	fmt.Fprintf(p.stderr, "rsmirror: could not fetch %s; the next run will retry:\n", progress.Count(remaining.Resources, "resource"))
	const maxPrinted = 10
	printed := int64(0)
	for f, err := range h.Ledger.Failures(ctx) {
		if err != nil {
			return err
		}
		if printed++; printed > maxPrinted {
			fmt.Fprintf(p.stderr, "  and %s more\n", progress.Group(int(remaining.Resources-maxPrinted)))
			break
		}
		fmt.Fprintf(p.stderr, "  %s: %s\n", f.Loc, f.Reason)
	}
	return errDifferences
}
