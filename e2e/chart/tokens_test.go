package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// tokensOf returns the Secret with the tokens, and its checksum in the pods.
func tokensOf(t *testing.T, values string, in cluster) (tokens map[string]string, checksum string) {
	t.Helper()
	i := install(t, parse(t, values), in)
	s := find[*corev1.Secret](i, "rshub-tokens")
	if s == nil {
		t.Fatal("found no Secret with tokens")
	}
	tokens = map[string]string{}
	for name, text := range s.Data {
		tokens[name] = string(text)
	}
	for name, token := range tokens {
		if name == "tokens" {
			continue
		}
		sum := sha256.Sum256([]byte(token))
		if line := name + " sha256:" + hex.EncodeToString(sum[:]) + " "; !strings.Contains(tokens["tokens"], "\n"+line) {
			t.Errorf("got tokens\n%[2]swant a line %[1]q", line, tokens["tokens"])
		}
	}
	return tokens, i.pod.Annotations["checksum/tokens"]
}

// TestTokensStay checks that an installation creates random tokens, and that an upgrade keeps them
// and adds only new ones.
func TestTokensStay(t *testing.T) {
	first, sum := tokensOf(t, "", nil)
	other, _ := tokensOf(t, "", nil)
	form := regexp.MustCompile(`^rshub_[A-Za-z0-9]{32}$`)
	in := cluster{"rshub-tokens": {}}
	for _, name := range []string{"publish", "follow", "operate"} {
		if !form.MatchString(first[name]) || first[name] == other[name] {
			t.Errorf("token %s = %q, in another installation %q, want random ones", name, first[name], other[name])
		}
	}
	if first["publish"] == first["follow"] || first["follow"] == first["operate"] {
		t.Error("got equal tokens, want different ones")
	}
	for name, text := range first {
		in["rshub-tokens"][name] = []byte(text)
	}
	second, again := tokensOf(t, "", in)
	if fmt.Sprint(second) != fmt.Sprint(first) || again != sum {
		t.Errorf("tokens after an upgrade = %[2]v, want %[1]v", first, second)
	}
	third, changed := tokensOf(t, `{tokens: {make: {publish: {token: rshub_given-by-the-values}, library: {rights: "publish:library.*"}}}}`, in)
	if third["follow"] != first["follow"] || third["publish"] != "rshub_given-by-the-values" || !form.MatchString(third["library"]) {
		t.Errorf("tokens after a change of values = %v, before %v", third, first)
	}
	if changed == sum {
		t.Error("checksum in the pods is unchanged after a change of tokens")
	}
}

// TestTokensOfSets checks that helm test and the notes use sets that the tokens allow.
func TestTokensOfSets(t *testing.T) {
	const narrow = `{config: {RSHUB_SETS: "library, checks"}, test: {set: checks}, tokens: {anyone: "operate, follow:lib*",
		make: {publish: {rights: "publish:library,publish:check*"}, follow: {rights: follow:checks}}}}`
	texts, err := render(t, parse(t, narrow), installed)
	if err != nil {
		t.Fatal(err)
	}
	if test := texts["tests/follow.yaml"]; strings.Count(test, `-set, "checks"`) != 2 {
		t.Errorf("got helm test\n%swant the set checks", test)
	}
	if notes := texts["NOTES.txt"]; strings.Count(notes, "/sets/library/changes") != 2 || strings.Contains(notes, ".data.follow") {
		t.Errorf("got notes\n%swant the set library without a token", notes)
	}
}
