package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const head = `# Third-party software

What the released programs link besides rshub itself, on any platform: each module with its licence, its copyright and, below, the whole text.
It is written by ` + "`make licences`" + `, from what Go links; ` + "`make lint`" + ` fails when it is not true any more, or when a licence is not one of %s.
The bills of materials of a release say which versions each program has on each platform.

| module | version | licence | in |
|---|---|---|---|
`

// A shared is a text of several modules, word for word but for their copyright lines.
type shared struct {
	title string
	of    []string // which modules have it, with their copyright
	body  string
}

// render returns the document. Its error names every module that rshub may not link.
func render(modules []*module) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, strings.Join(may, ", "))
	var problems []error
	byWords := map[string]*shared{}
	var bodies []*shared
	for _, m := range modules {
		texts, err := m.texts()
		if err != nil {
			return nil, err
		}
		all := map[string]bool{}
		found := false // of a licence, which a NOTICE is not
		var lines []string
		for _, t := range texts {
			said, body := copyrights(t.content)
			lines = append(lines, said...)
			title := "Notice"
			switch {
			case t.patents:
				title = "Patents"
			case !t.notice:
				of, err := licence(t.content)
				if err != nil {
					problems = append(problems, fmt.Errorf("%s: %s %w", m.path, t.name, err))
					continue
				}
				found = true
				for _, kind := range of {
					all[kind] = true
				}
				title = strings.Join(of, " and ")
			}
			key := title + plain(body)
			if byWords[key] == nil {
				byWords[key] = &shared{title: title, body: body}
				bodies = append(bodies, byWords[key])
			}
			byWords[key].of = append(byWords[key].of, entry(m, t, said))
		}
		if !found {
			problems = append(problems, fmt.Errorf("%s has no licence", m.path))
		}
		if len(lines) == 0 {
			if lines, err = m.headers(); err != nil {
				return nil, err
			}
			for _, body := range bodies {
				for i := range body.of {
					if body.of[i] == entry(m, text{name: "LICENSE"}, nil) {
						body.of[i] = entry(m, text{name: "LICENSE"}, lines)
					}
				}
			}
		}
		version := m.version
		if m.path == goItself {
			version = "that of the build"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.path, version, strings.Join(slices.Sorted(maps.Keys(all)), ", "), m.in())
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, t := range bodies {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", t.title, strings.Join(t.of, "\n"), strings.Trim(t.body, "\n"))
	}
	return b.Bytes(), nil
}

// entry says that a module has a text, and whose the module is.
func entry(m *module, t text, copyright []string) string {
	line := "- " + m.path
	if strings.Contains(t.name, "/") {
		line += ", " + t.name
	}
	if len(copyright) > 0 {
		line += ": " + strings.Join(copyright, "; ")
	}
	return line
}

// in names the programs that link m.
func (m *module) in() string {
	var names []string
	for _, program := range programs {
		if m.programs[program] {
			names = append(names, program)
		}
	}
	return strings.Join(names, ", ")
}
