<?php
// The Workerman contestant. Everything it is told comes from the environment.
use Workerman\Connection\TcpConnection;
use Workerman\Protocols\Http\Response;
use Workerman\Worker;

require getenv('VENDOR') . '/autoload.php';

$headers = ['Content-Type' => getenv('CEILING_TYPE')];
foreach (array_filter(explode("\n", getenv('CEILING_HEADERS'))) as $line) {
    [$name, $value] = explode(': ', $line, 2);
    $headers[$name] = $value;
}
$body = getenv('CEILING_BODY');
$close = getenv('CEILING_CLOSE') === '1';
if ($close) {
    $headers['Connection'] = 'close';   // else it would promise keep-alive and close, which wrk counts as an error
}

Worker::$pidFile = getenv('WORK') . '/pid';
Worker::$logFile = getenv('WORK') . '/workerman.log';
$worker = new Worker('http://127.0.0.1:' . getenv('CEILING_PORT'));
$worker->count = (int) getenv('CEILING_WORKERS');
$worker->onMessage = static function (TcpConnection $connection) use ($headers, $body, $close): void {
    $response = new Response(200, $headers, $body);
    if ($close) {
        $connection->close($response);
    } else {
        $connection->send($response);
    }
};
Worker::runAll();
