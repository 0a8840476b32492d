package chart

import (
	"strings"
	"testing"
)

// What is misspelt or contradicts itself is refused with a sentence that names it.
func TestRefused(t *testing.T) {
	for _, test := range []struct{ name, values, want string }{
		{"misspelt", "replicacount: 2", "'replicacount' not allowed"},
		{"no image", `image: {repository: ""}`, "image.repository is not set"},
		{"the number of hubs by another name", "replicas: 2", "how many hubs there are is replicaCount"},
		{"misspelt below", "redis: {uri: redis://redis}", "'uri' not allowed"},
		{"misspelt variable", "config: {RSHUB_RETENTON_AGE: 1h}", "'RSHUB_RETENTON_AGE' not allowed"},
		{"misspelt in a list", "networkPolicy: {from: [{podSelectors: {}}]}", "'podSelectors' not allowed"},
		{"a variable of the chart's", "config: {RSHUB_LISTEN: ':9'}", "'RSHUB_LISTEN' not allowed"},
		{"not a number", "replicaCount: two", "want integer"},
		{"not a URL", "baseURL: hub.example.org", "/baseURL"},
		{"not a right", "tokens: {make: {publish: {rights: write}}}", "/tokens/make/publish/rights"},
		{"not a name", "tokens: {make: {anyone: {rights: operate}}}", "anyone"},
		{"a token that could be guessed", "tokens: {make: {publish: {token: secret}}}", "/tokens/make/publish/token"},
		{"not that word", "insecure: yes-please", "anyone-may-publish"},
		{"not a size", "persistence: {size: 8GB}", "/persistence/size"},
		{"alive only at the second time", "probes: {liveness: {successThreshold: 2}}", "'successThreshold' not allowed"},
		{"started only at the second time", "probes: {startup: {successThreshold: 2}}", "'successThreshold' not allowed"},
		{"ready elsewhere", "probes: {readiness: {path: /metrics}}", "/probes/readiness/path"},

		{"several hubs without Redis", "replicaCount: 3", "replicaCount is 3, and hubs share a memory only in Redis: set redis.url"},
		{"scaling without Redis", "autoscaling: {enabled: true}", "autoscaling makes several hubs"},
		{"NATS without Redis", "nats: {url: nats://nats}", "there are others only with Redis"},
		{"a claim and Redis", "{redis: {url: redis://redis}, persistence: {existingClaim: data}}", "rshub copy"},
		{"Redis twice", "redis: {url: redis://redis, existingSecret: redis}", "both say where Redis is"},
		{"NATS twice", "{redis: {url: redis://redis}, nats: {url: nats://nats, existingSecret: nats}}", "both say where NATS is"},
		{"credentials without NATS", "nats: {credentialsSecret: creds}", "neither is set"},
		{"replicas of no Redis", "config: {RSHUB_REDIS_WAIT: 1}", "counts replicas of Redis"},
		{"more than most", "{redis: {url: redis://redis}, autoscaling: {enabled: true, minReplicas: 20}}", "minReplicas is 20, more than autoscaling.maxReplicas, 10"},
		{"no reason to scale", "{redis: {url: redis://redis}, autoscaling: {enabled: true, targetCPUUtilizationPercentage: 0}}", "no reason to scale"},
		{"percent of nothing", "{redis: {url: redis://redis}, autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}", "percent of resources.requests.cpu, which is not set"},
		{"no tokens", "tokens: {create: false}", "anyone could publish"},
		{"no token and tokens", "{insecure: anyone-may-publish, tokens: {existingSecret: ours}}", "leave one out"},
		{"open to the world", "{insecure: anyone-may-publish, ingress: {enabled: true, host: hub.example.org}}", "anyone out there publish"},
		{"open to the world by the Service", "{insecure: anyone-may-publish, baseURL: 'http://hub', service: {type: NodePort}}", "of type NodePort would let anyone"},
		{"a test without its token", "tokens: {make: {publish: null}}", "helm test publishes and follows"},
		{"a test that may not publish", `tokens: {make: {publish: {rights: "publish:library.*, follow:*"}}}`, "may not publish helm-test by tokens.make.publish.rights"},
		{"a test that may not follow", "tokens: {make: {follow: {rights: follow:helm}}}", "may not follow helm-test by tokens.make.follow.rights"},
		{"anyone beside one's own tokens", "tokens: {anyone: follow:*, existingSecret: ours}", "write a line \"anyone - follow:*\" there"},
		{"anyone where everybody may all", "{insecure: anyone-may-publish, tokens: {anyone: follow:*}}", "insecure is in place of that"},
		{"a token beside one's own", "tokens: {make: {publish: {token: rshub_AAAAAAAAAAAAAAAAAAAA}}, existingSecret: ours}", "tokens.make.publish.token is for the tokens file"},
		{"one token twice", "tokens: {make: {publish: {token: rshub_AAAAAAAAAAAAAAAAAAAA}, follow: {token: rshub_AAAAAAAAAAAAAAAAAAAA}}}", "tokens.make.follow and tokens.make.publish are the same"},
		{"an Ingress of no host", "ingress: {enabled: true}", "ingress.enabled needs ingress.host"},
		{"a certificate without TLS", "ingress: {enabled: true, host: h, tls: false, tlsSecret: c}", "ingress.tls is false"},
		{"a route to nothing", "httpRoute: {enabled: true}", "httpRoute.enabled needs httpRoute.parentRefs"},
		{"two hosts", "{ingress: {enabled: true, host: a.org}, httpRoute: {enabled: true, parentRefs: [{name: g}], hostnames: [b.org]}}", "a hub has one URL: set baseURL"},
		{"outside without a URL", "service: {type: LoadBalancer}", "set baseURL"},
		{"a LoadBalancer's class", "service: {loadBalancerClass: internal}", "are of a LoadBalancer, and service.type is ClusterIP"},
		{"a LoadBalancer's ranges", "{baseURL: 'http://hub', service: {type: NodePort, loadBalancerSourceRanges: [198.51.100.0/24]}}", "are of a LoadBalancer, and service.type is NodePort"},
		{"traffic from outside", "service: {externalTrafficPolicy: Local}", "externalTrafficPolicy is of a LoadBalancer or NodePort"},
		{"a port of Redis that is closed", "{networkPolicy: {enabled: true}, redis: {url: 'rediss://hub:a:1@redis:6380/0?ca_file=/a:2'}}", "redis.url has the port 6380, and networkPolicy.redisPorts lets the hub reach only 6379, 26379"},
		{"a port of Sentinel that is closed", "{networkPolicy: {enabled: true}, redis: {url: 'redis-sentinel://a:26379,b:26380/main'}}", "redis.url has the port 26380"},
		{"a port of NATS that is closed", "{networkPolicy: {enabled: true}, redis: {url: 'redis://redis:6379'}, nats: {url: 'nats://a:4222,[fd00::1]:4223'}}", "nats.url has the port 4223"},
		{"metrics that nobody may read", "{serviceMonitor: {enabled: true}, networkPolicy: {enabled: true}}", "name it in networkPolicy.opsFrom"},
		{"alerts of no job", "prometheusRule: {enabled: true}", "set serviceMonitor.enabled, or prometheusRule.matchers"},
		{"matchers that are none", "prometheusRule: {matchers: rshub}", "/prometheusRule/matchers"},
		{"a variable of the chart's as more", "extraEnv: [{name: RSHUB_DATA, value: /x}]", "extraEnv has RSHUB_DATA"},
		{"a delay twice", "extraEnv: [{name: RSHUB_DRAIN_DELAY, value: 5s}]", "drain.preStopSeconds is for that"},
		{"a variable twice", "{config: {RSHUB_PREFIX: a}, extraEnv: [{name: RSHUB_PREFIX, value: b}]}", "extraEnv and config both have RSHUB_PREFIX"},
		{"an alert that is none", "prometheusRule: {alerts: {RshubNotRaedy: {enabled: false}}}", "RshubNotRaedy: there is no such alert; there are "},
	} {
		t.Run(test.name, func(t *testing.T) {
			texts, err := render(t, parse(t, test.values), installed)
			if err == nil {
				t.Fatalf("it was rendered: %d files", len(texts))
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("it was refused, but not because %q:\n%v", test.want, err)
			}
		})
	}
}

// Everything that is wrong is said at once.
func TestRefusedAtOnce(t *testing.T) {
	_, err := render(t, parse(t, "{replicaCount: 2, nats: {url: nats://nats}, ingress: {enabled: true}}"), installed)
	if err == nil || strings.Count(err.Error(), "\n- ") != 3 {
		t.Errorf("it was refused: %v", err)
	}
}
