package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// healthcheck returns the line of a Dockerfile for a check.
func healthcheck(h *v1.HealthConfig) string {
	test, _ := json.Marshal(h.Test[1:]) // strings are always JSON
	return fmt.Sprintf("HEALTHCHECK --interval=%s --timeout=%s --start-period=%s --retries=%d %s %s",
		short(h.Interval), short(h.Timeout), short(h.StartPeriod), h.Retries, h.Test[0], strings.ReplaceAll(string(test), ",", ", "))
}

// short writes a duration in seconds.
func short(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }

// deploy/Dockerfile makes the same image.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, _ := strings.Cut(string(text), "\nFROM scratch\n")
	c := newContents("$VERSION", "$REVISION", "$CREATED")
	var want []string
	for _, f := range c.files {
		switch {
		case f.from == "":
			want = append(want, "COPY --from=build --chown="+c.config.User+" /out/"+f.to+" /"+f.to)
		case f.kept:
			want = append(want, "COPY --from=build /src/"+f.from+" /"+f.to)
		default:
			want = append(want, "COPY --from=build /out/"+f.from+" /"+f.to)
		}
	}
	want = append(want, "USER "+c.config.User, "ENV "+strings.Join(c.config.Env, " "), "VOLUME /data", "EXPOSE 8080 8081", healthcheck(c.config.Healthcheck), `ENTRYPOINT ["`+c.config.Entrypoint[0]+`"]`)
	var got, labels []string
	for line := range strings.Lines(stage) {
		line = strings.TrimSuffix(strings.TrimSpace(line), ` \`)
		switch label, ok := strings.CutPrefix(strings.TrimPrefix(line, "LABEL "), "org."); {
		case ok:
			labels = append(labels, "org."+strings.ReplaceAll(label, `"`, ""))
		case line != "" && !strings.HasPrefix(line, "ARG "):
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the Dockerfile says\n%s\nand the image is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.config.Labels)) {
		if !slices.Contains(labels, name+"="+c.config.Labels[name]) {
			t.Errorf("the Dockerfile has no label %s=%s", name, c.config.Labels[name])
		}
	}
	if len(labels) != len(c.config.Labels) {
		t.Errorf("the Dockerfile has the labels %q", labels)
	}
}
