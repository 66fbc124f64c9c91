// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const roleKey = "metafence.io/role"

func kubeConfig() (*rest.Config, error) {
	if *server == "" {
		return rest.InClusterConfig()
	}
	return &rest.Config{Host: *server, BearerTokenFile: *tokenFile}, nil
}

// labeler keeps the pod's label what it was last told.
type labeler struct {
	wanted  atomic.Value
	changed chan struct{}
}

func (l *labeler) set(role string) {
	if l.wanted.Swap(role) != role {
		l.hint()
	}
}

func (l *labeler) hint() {
	select {
	case l.changed <- struct{}{}:
	default: // one is waiting
	}
}

func (l *labeler) run(ctx context.Context, client *kubernetes.Clientset) {
	for {
		select {
		case <-l.changed:
		case <-ctx.Done():
			return
		}
		body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, roleKey, l.wanted.Load())
		options := metav1.PatchOptions{FieldManager: "peer"}
		_, err := client.CoreV1().Pods(*namespace).Patch(ctx, *pod, types.MergePatchType, body, options)
		if err != nil {
			slog.Warn("the label was not patched", "error", err)
			time.AfterFunc(time.Second, l.hint)
		}
	}
}

func podInformer(
	client *kubernetes.Clientset, tweak func(*metav1.ListOptions), transform cache.TransformFunc,
) cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace),
		informers.WithTweakListOptions(tweak), informers.WithTransform(transform))
	return factory.Core().V1().Pods().Informer()
}

// watchOwnPod has the label written again when somebody else has changed it.
func watchOwnPod(ctx context.Context, client *kubernetes.Clientset, l *labeler) {
	only := func(list *metav1.ListOptions) { list.FieldSelector = "metadata.name=" + *pod }
	informer := podInformer(client, only, nil)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // an error only once it has stopped
		UpdateFunc: func(_, now any) {
			if wanted := l.wanted.Load(); wanted != nil && now.(*corev1.Pod).Labels[roleKey] != wanted {
				l.hint()
			}
		},
	})
	go informer.Run(ctx.Done())
}

// watchWorkers holds all pods of the workers, as one does who compares rows with pods.
func watchWorkers(ctx context.Context, client *kubernetes.Clientset) {
	var transform cache.TransformFunc
	if *trim {
		transform = trimmed
	}
	all := func(list *metav1.ListOptions) { list.LabelSelector = *workers }
	informer := podInformer(client, all, transform)
	go informer.Run(ctx.Done())
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		slog.Info("the workers' pods are known", "count", len(informer.GetStore().ListKeys()))
	}
}

// trimmed is what tells whether a worker lives: identity, addresses, phase and states of the containers.
func trimmed(object any) (any, error) {
	full, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	status := corev1.PodStatus{Phase: full.Status.Phase, PodIPs: full.Status.PodIPs}
	status.ContainerStatuses = full.Status.ContainerStatuses
	kept := metav1.ObjectMeta{Name: full.Name, Namespace: full.Namespace, UID: full.UID}
	kept.ResourceVersion, kept.DeletionTimestamp = full.ResourceVersion, full.DeletionTimestamp
	return &corev1.Pod{ObjectMeta: kept, Status: status}, nil
}
