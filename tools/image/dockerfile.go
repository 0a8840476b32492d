package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A stage is the last stage of a Dockerfile: what the image holds, and how it is
// run.
type stage struct {
	copies []copied
	config v1.Config
}

// A copied file or directory is one COPY.
type copied struct {
	from, to string // in the stage that builds, and in the image
	uid, gid int
}

// readStage reads the last stage of a Dockerfile, with values of its ARGs. It
// knows the instructions that ours needs and refuses every other: an image that
// lacks something would look like the one that Docker builds.
func readStage(dockerfile string, args map[string]string) (*stage, error) {
	s := &stage{config: v1.Config{Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}, Volumes: map[string]struct{}{}}}
	declared := map[string]string{}
	inLast := false
	for _, line := range instructions(dockerfile) {
		name, rest, _ := strings.Cut(line, " ")
		if name == "FROM" {
			inLast = strings.TrimSpace(rest) == "scratch"
			continue
		}
		if !inLast {
			continue
		}
		if name == "ARG" {
			for _, arg := range strings.Fields(rest) {
				declared[arg] = args[arg]
			}
			continue
		}
		words, err := split(rest, declared)
		if err == nil {
			err = s.instruction(name, rest, words)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	if len(s.copies) == 0 {
		return nil, fmt.Errorf("the last stage is not FROM scratch, or copies nothing")
	}
	return s, nil
}

// instructions returns the lines of a Dockerfile without comments, continued
// ones as one.
func instructions(dockerfile string) (lines []string) {
	var line string
	for part := range strings.Lines(dockerfile) {
		part = strings.TrimSpace(part)
		if part == "" || part[0] == '#' {
			continue
		}
		if begun, more := strings.CutSuffix(part, `\`); more {
			line += begun
			continue
		}
		lines = append(lines, line+part)
		line = ""
	}
	return lines
}

// split splits at blanks that are not in double quotes, and puts in the values
// of variables.
func split(text string, variables map[string]string) (words []string, err error) {
	var word strings.Builder
	quoted, begun := false, false
	end := func() {
		if begun {
			words = append(words, os.Expand(word.String(), func(name string) string {
				value, known := variables[name]
				if !known {
					err = fmt.Errorf("no ARG declares %s", name)
				}
				return value
			}))
		}
		word.Reset()
		begun = false
	}
	for _, r := range text {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			end()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	if quoted {
		err = fmt.Errorf("a quote is not closed")
	}
	return words, err
}

// instruction takes one instruction into the stage.
func (s *stage) instruction(name, rest string, words []string) error {
	switch name {
	case "LABEL":
		for _, w := range words {
			key, value, ok := strings.Cut(w, "=")
			if !ok {
				return fmt.Errorf("%s is not NAME=VALUE", w)
			}
			if value != "" { // an ARG that was not given
				s.config.Labels[key] = value
			}
		}
	case "ENV":
		for _, w := range words {
			if !strings.Contains(w, "=") {
				return fmt.Errorf("%s is not NAME=VALUE", w)
			}
		}
		s.config.Env = append(s.config.Env, words...)
	case "EXPOSE":
		for _, port := range words {
			if !strings.Contains(port, "/") {
				port += "/tcp"
			}
			s.config.ExposedPorts[port] = struct{}{}
		}
	case "VOLUME":
		for _, path := range words {
			s.config.Volumes[path] = struct{}{}
		}
	case "USER":
		s.config.User = rest
	case "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &s.config.Entrypoint); err != nil {
			return fmt.Errorf("it is a JSON array: %w", err)
		}
	case "COPY":
		return s.addCopy(words)
	default:
		return fmt.Errorf("this instruction is not understood")
	}
	return nil
}

// addCopy takes COPY --from=build [--chown=UID:GID] FROM TO.
func (s *stage) addCopy(words []string) error {
	var c copied
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		flag, value, _ := strings.Cut(words[0], "=")
		words = words[1:]
		switch {
		case flag == "--chown":
			uid, gid, _ := strings.Cut(value, ":")
			var errUID, errGID error
			c.uid, errUID = strconv.Atoi(uid)
			c.gid, errGID = strconv.Atoi(gid)
			if errUID != nil || errGID != nil {
				return fmt.Errorf("--chown is UID:GID")
			}
		case flag == "--from" && value == "build":
		default:
			return fmt.Errorf("%s is not understood", flag)
		}
	}
	if len(words) != 2 {
		return fmt.Errorf("it is not one file or directory")
	}
	c.from, c.to = words[0], words[1]
	s.copies = append(s.copies, c)
	return nil
}
