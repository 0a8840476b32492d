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

// tokensOf returns the Secret with the tokens, and the pods' checksum of it.
func tokensOf(t *testing.T, values string, in cluster) (tokens map[string]string, checksum string) {
	t.Helper()
	i := install(t, parse(t, values), in)
	s := find[*corev1.Secret](i, "rshub-tokens")
	if s == nil {
		t.Fatal("there is no Secret with tokens")
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
			t.Errorf("there is no line %q in\n%s", line, tokens["tokens"])
		}
	}
	return tokens, i.pod.Annotations["checksum/tokens"]
}

// The first installation makes tokens at random, an upgrade keeps them, and adds
// only what is new.
func TestTokensStay(t *testing.T) {
	first, sum := tokensOf(t, "", nil)
	other, _ := tokensOf(t, "", nil)
	form := regexp.MustCompile(`^rshub_[A-Za-z0-9]{32}$`)
	in := cluster{"rshub-tokens": {}}
	for _, name := range []string{"publish", "follow", "operate"} {
		if !form.MatchString(first[name]) || first[name] == other[name] {
			t.Errorf("%s has the token %q, and in another installation %q", name, first[name], other[name])
		}
	}
	if first["publish"] == first["follow"] || first["follow"] == first["operate"] {
		t.Error("two rights have one token")
	}
	for name, text := range first {
		in["rshub-tokens"][name] = []byte(text)
	}
	second, again := tokensOf(t, "", in)
	if fmt.Sprint(second) != fmt.Sprint(first) || again != sum {
		t.Errorf("an upgrade changes the tokens %v to %v", first, second)
	}
	third, changed := tokensOf(t, `{tokens: {make: {publish: {token: rshub_given-by-the-values}, library: {rights: "publish:library.*"}}}}`, in)
	if third["follow"] != first["follow"] || third["publish"] != "rshub_given-by-the-values" || !form.MatchString(third["library"]) {
		t.Errorf("what the values say makes %v of %v", third, first)
	}
	if changed == sum {
		t.Error("the pods do not notice other tokens")
	}
}

// helm test and the notes use sets that the tokens are for.
func TestTokensOfSets(t *testing.T) {
	const narrow = `{config: {RSHUB_SETS: "library, checks"}, test: {set: checks}, tokens: {anyone: "operate, follow:lib*",
		make: {publish: {rights: "publish:library,publish:check*"}, follow: {rights: follow:checks}}}}`
	texts, err := render(t, parse(t, narrow), installed)
	if err != nil {
		t.Fatal(err)
	}
	if test := texts["tests/follow.yaml"]; strings.Count(test, `-set, "checks"`) != 2 {
		t.Errorf("helm test is\n%s", test)
	}
	if notes := texts["NOTES.txt"]; strings.Count(notes, "/sets/library/changes") != 2 || strings.Contains(notes, ".data.follow") {
		t.Errorf("the notes use another set, or a token that needs not be:\n%s", notes)
	}
}
