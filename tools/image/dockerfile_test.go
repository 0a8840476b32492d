package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestReadStage(t *testing.T) {
	const text = `# a comment
FROM golang AS build
RUN what ever \
 && more
FROM scratch
ARG VERSION REVISION
LABEL a=b \
      # in the middle
      c="two words" v=${VERSION} r=$REVISION
COPY --from=build /out/rshub /rshub
COPY --from=build --chown=1:2 /out/data /data
USER 1:2
ENV A=1 B="2 3"
VOLUME /data
EXPOSE 8080 53/udp
ENTRYPOINT ["/rshub", "serve"]
`
	got, err := readStage(text, map[string]string{"VERSION": "v1"})
	if err != nil {
		t.Fatal(err)
	}
	want := &stage{
		copies: []copied{{"/out/rshub", "/rshub", 0, 0}, {"/out/data", "/data", 1, 2}},
		config: v1.Config{
			Labels: map[string]string{"a": "b", "c": "two words", "v": "v1"}, // a label without a value says nothing
			User:   "1:2", Env: []string{"A=1", "B=2 3"}, Entrypoint: []string{"/rshub", "serve"},
			Volumes:      map[string]struct{}{"/data": {}},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "53/udp": {}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("readStage() = %+v, want %+v", got, want)
	}
}

func TestReadStageRefuses(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"another base", "FROM debian\nCOPY --from=build /a /a", "FROM scratch"},
		{"nothing to copy", "FROM scratch\nUSER 1", "copies nothing"},
		{"an instruction that it does not know", "FROM scratch\nCOPY --from=build /a /a\nHEALTHCHECK NONE", "HEALTHCHECK NONE: this instruction"},
		{"a flag that it does not know", "FROM scratch\nCOPY --chmod=0700 /a /a", "--chmod"},
		{"another stage", "FROM scratch\nCOPY --from=base /a /a", "--from"},
		{"an owner by name", "FROM scratch\nCOPY --from=build --chown=me:us /a /a", "UID:GID"},
		{"two files", "FROM scratch\nCOPY --from=build /a /b /", "not one"},
		{"a variable that is none", "FROM scratch\nLABEL a=$NONE", "NONE"},
		{"an open quote", "FROM scratch\nLABEL a=\"b", "quote"},
		{"no value", "FROM scratch\nENV A", "NAME=VALUE"},
		{"a shell's entry point", "FROM scratch\nENTRYPOINT /rshub", "JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := readStage(test.text, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("readStage() = %v, want %q", err, test.want)
			}
		})
	}
}

// The Dockerfile that is there can be read.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	s, err := readStage(string(text), map[string]string{"VERSION": "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.copies) != 6 || s.config.User != "65532:65532" || s.config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("it says %+v", s)
	}
}
